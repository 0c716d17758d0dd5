"""Packaging of fb_fairseq. Nothing is compiled at installation."""

import re
import sys
from pathlib import Path

# pip looks at python_requires only after it has downloaded torch.
if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit("fb_fairseq does not run on Python {}.{}; use Python 3.10 or 3.12".format(*sys.version_info))

from setuptools import find_packages, setup  # noqa: E402

HERE = Path(__file__).resolve().parent
# Where the repository is public. Once CITATION.cff says so, PyPI's page links to it and shows the figures.
PUBLISHED = re.search(r"^repository-code: *\"?([^\"\s]+)", (HERE / "CITATION.cff").read_text(encoding="utf-8"), re.M)
URL = PUBLISHED[1] if PUBLISHED else ""


def for_pypi(text: str) -> str:
    """README with absolute links, because PyPI has its text alone. Without a public repository, links to files become
    plain text, and figures are left out."""

    def absolute(link: "re.Match[str]") -> str:
        figure, label, target = link.groups()
        if "://" in target:
            return link[0]
        if not URL:
            return "" if figure else label
        return f"{figure}[{label}]({URL}/{'raw' if figure else 'blob'}/HEAD/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", absolute, text)


PAPERS = {
    "Feedback Transformer (paper)": "https://arxiv.org/abs/2002.09402",
    "All-attention (paper)": "https://arxiv.org/abs/1907.01470",
}
PAGES = {
    "Source": URL,
    "Documentation": f"{URL}/tree/HEAD/docs",
    "Changelog": f"{URL}/blob/HEAD/CHANGELOG.md",
    "Issues": f"{URL}/issues",
}

# Its releases rename what generation passes to a model (5.24 did): a new one is allowed when the tests have passed.
TRANSFORMERS = "transformers>=5.4,<5.25"
GRADIO = "gradio>=6,<7"

setup(
    name="fb_fairseq",
    version="0.1.0",
    description="Feedback Transformer and All-attention networks for fairseq",
    long_description=for_pypi((HERE / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    author="The fb_fairseq authors",
    license="MIT",
    project_urls={**(PAGES if URL else {}), **PAPERS},
    keywords="feedback transformer, all-attention, state tracking, memory, language model, translation, fairseq",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: {version}" for version in ("3", "3.10", "3.12")),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["fb_fairseq", "fb_fairseq.*"]),
    package_data={
        "fb_fairseq": ["py.typed"],
        "fb_fairseq.commands.explore": ["*.css", "*.js"],
        "fb_fairseq.ops.feedback.cpp": ["src/*"],  # compiled at first use
        "fb_fairseq.papers.values": ["*.json"],
        "fb_fairseq.pretrained": ["*/*"],
        "fb_fairseq.transformers": ["*.bib"],
    },
    # With a package_dir, "pip install -e" writes the clone's path into a .pth file. Without one it installs an import
    # hook, which a folder named fb_fairseq takes precedence over: the clone itself, seen from its parent folder.
    package_dir={"": "."},
    entry_points={"console_scripts": ["fb-fairseq=fb_fairseq.commands:main"]},
    python_requires=">=3.10",
    # fairseq does not run on 3.11 and from 3.13 on. There the package installs without it: for fb_fairseq.modules and
    # whatever else needs torch alone.
    install_requires=[
        'fairseq==0.12.2; python_version<"3.11"',
        'fairseq-fixed==0.12.3.1; python_version=="3.12"',
        "torch>=2.6",
        "numpy",
        "safetensors",
    ],
    extras_require={
        "compiler": ["ziglang"],  # for the step loop in C++, where the system has no compiler
        "explore": [GRADIO],
        "notebook": ["jupyterlab", "matplotlib"],
        "plot": ["matplotlib", "tensorboard"],
        "rl": ["matplotlib", "pillow"],
        "translation": ["sacremoses", "subword-nmt", "rouge-score", "sacrebleu>=2"],
        "transformers": [TRANSFORMERS, "tokenizers", "accelerate"],
        "state-tracking": [TRANSFORMERS, "mambapy", "matplotlib"],
        "test": [
            *("pytest", "pytest-timeout", "pytest-xdist", "ruff==0.17.6", "nbclient", "ipykernel"),
            *(TRANSFORMERS, "accelerate"),
            GRADIO,
            *("lm-eval", "mypy", "twine"),
        ],
    },
)
