"""Packaging of fb_fairseq. Nothing is compiled at installation."""

import sys

# pip looks at python_requires only after it has downloaded torch.
if sys.version_info < (3, 8):
    sys.exit("fb_fairseq does not run on Python {}.{}; use Python 3.10 or 3.12".format(*sys.version_info))

from setuptools import find_packages, setup  # noqa: E402

with open("README.md", encoding="utf-8") as readme:
    long_description = readme.read()

# Its releases rename what generation passes to a model (5.24 did): a new one is allowed when the tests have passed.
TRANSFORMERS = "transformers>=5,<5.25"
GRADIO = "gradio>=6,<7"

setup(
    name="fb_fairseq",
    version="0.1.0",
    description="Feedback Transformer and All-attention networks for fairseq",
    long_description=long_description,
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["fb_fairseq", "fb_fairseq.*"]),
    package_data={
        "fb_fairseq": ["py.typed"],
        "fb_fairseq.ops.feedback.native": ["src/*"],  # compiled at first use
        "fb_fairseq.papers": ["*.json"],
    },
    # With a package_dir, "pip install -e" writes the clone's path into a .pth file. Without one it installs an import
    # hook, which a folder named fb_fairseq takes precedence over: the clone itself, seen from its parent folder.
    package_dir={"": "."},
    entry_points={"console_scripts": ["fb-fairseq=fb_fairseq.commands:main"]},
    python_requires=">=3.8",
    # fairseq does not run on 3.11 and from 3.13 on. There the package installs without it: for fb_fairseq.modules and
    # whatever else needs torch alone.
    install_requires=[
        'fairseq==0.12.2; python_version<"3.11"',
        'fairseq-fixed==0.12.3.1; python_version=="3.12"',
        "torch>=2.4",
        "numpy",
    ],
    extras_require={
        "explore": [GRADIO],
        "notebook": ["jupyterlab", "matplotlib"],
        "plot": ["matplotlib", "tensorboard"],
        "rl": ["gymnasium>=1.1", "matplotlib", "pillow"],
        "translation": ["sacremoses", "subword-nmt", "rouge-score", "sacrebleu>=2"],
        "transformers": [TRANSFORMERS, "safetensors", "tokenizers", "accelerate"],
        "state-tracking": [TRANSFORMERS, "mambapy", "matplotlib"],
        "fla": [TRANSFORMERS, "flash-linear-attention"],
        "test": [
            *("pytest", "pytest-xdist", "ruff==0.17.6", "nbclient", "ipykernel"),
            *(TRANSFORMERS + '; python_version>="3.10"', 'accelerate; python_version>="3.10"'),
            GRADIO + '; python_version>="3.10"',
            *('lm-eval; python_version>="3.10"', "mypy"),
        ],
    },
)
