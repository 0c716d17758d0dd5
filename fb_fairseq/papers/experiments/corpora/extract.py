"""Write a member of a .zip, or its only file, to standard output: ``extract ZIP MEMBER``."""

import shutil
import sys
import zipfile

if __name__ == "__main__":
    with zipfile.ZipFile(sys.argv[1]) as archive:
        names = archive.namelist()
        with archive.open(names[0] if len(names) == 1 else sys.argv[2]) as member:
            shutil.copyfileobj(member, sys.stdout.buffer)
