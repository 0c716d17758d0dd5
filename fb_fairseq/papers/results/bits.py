"""Print the bits per byte of the test split: all bits, including those of </s>, divided by its bytes:
``bits EVALUATION PREPARATION``, the logs of fairseq-eval-lm and of preprocess-bytes.
"""

from fb_fairseq.papers.results.program import run_main
from fb_fairseq.papers.results.write import last


def main(evaluation: str, preparation: str) -> None:
    """Print the figure."""
    bits = last("bits", evaluation)
    tokens = last("tokens", evaluation)
    size = last("test_bytes", preparation)
    print(f"Test split: {bits * tokens / size:.3f} bits per byte ({size:.0f} bytes)")


if __name__ == "__main__":
    run_main(main)
