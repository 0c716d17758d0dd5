"""Which text of a Wikipedia page ``clean_wikipedia`` keeps."""

from tests.papers.programs import run_module

PAGE = b"""<mediawiki>
<title>Not shown</title>
<text xml:space="preserve">'''Anarchism''' is, since [[1840]], a
[[label|word]] or more.&lt;ref name=x&gt;a source&lt;/ref&gt;
[[Image:x.png|thumb|20px|A caption]] {{box|gone}} {| table |} [http://example.org shown] caf\xc3\xa9 &amp;nbsp; 3rd
[[Category:Ideas|key]] [[de:Anarchismus]]</text>
<comment>not shown</comment>
<text xml:space="preserve">#REDIRECT [[Elsewhere]]</text>
<text xml:space="preserve">End</text>
</mediawiki>"""


def clean(path, out, *arguments):
    return run_module("experiments.corpora.clean_wikipedia", path, out, *arguments)


def test_the_text_that_a_reader_sees(tmp_path):
    (tmp_path / "dump").write_bytes(PAGE)
    assert clean(tmp_path / "dump", tmp_path / "out").status == 0
    text = (tmp_path / "out").read_text()
    assert text == (" anarchism is since one eight four zero a word or more a caption shown caf three rd ideas end")
    again = clean(tmp_path / "dump", tmp_path / "out")
    assert again.status == 2 and "out: this command has not written it" in again.errors.splitlines()[-1]
    assert clean(tmp_path / "dump", tmp_path / "out", "--bytes", "20", "--overwrite").status == 0
    assert (tmp_path / "out").read_text() == text[:20]


def test_not_a_dump(tmp_path):
    (tmp_path / "dump").write_bytes(b"words")
    done = clean(tmp_path / "dump", tmp_path / "out")
    assert done.status == 0 and (tmp_path / "out").read_text() == "words", "it is copied"
    assert "No such file" in clean(tmp_path / "nowhere", tmp_path / "other").errors
