"""The options that a run was trained with, and others that are refused."""

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.training import keep_options

GIVEN = ["data", "--dropout", "0.1", "--batch-size", "64", "--seed", "1", "--from", "OUT/a b/x.pt"]


@pytest.fixture
def setting(tmp_path):
    """Keeps the options of tmp_path/model; returns the message if they are refused."""

    def run(*options, processes=1, out=tmp_path):
        given = [str(option).replace("OUT", str(out)) for option in options]
        try:
            keep_options(f"{out}/model", str(out), processes, given)
        except UserError as error:
            return str(error)
        return ""

    return run


def trained(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/checkpoint_best.pt").touch()


def test_the_same_setting_goes_on(tmp_path, setting):
    setting(*GIVEN)
    trained(tmp_path)
    assert (tmp_path / "model.setting").read_text() == ("--batch-size 64\n--dropout 0.1\n--from a b/x.pt\n--seed 1\n")
    assert setting(*GIVEN, "--max-update", 9, "--cpu", "--log-interval", 5, "--validate-interval-updates=3") == ""
    assert setting(*GIVEN, "--batch-size", 8, "--update-freq", 4, processes=2) == "", "as many streams"
    assert setting("elsewhere", "--dropout", 0.5, *GIVEN[1:]) == "", "the last one counts"
    assert setting(*GIVEN, "--dropout", "1e-1") == "", "the same number"
    tuning = [*GIVEN, "--finetune-from-model", "x"]
    (tmp_path / "model.setting").write_text((tmp_path / "model.setting").read_text() + "--finetune-from-model x\n")
    assert setting(*tuning) == ""
    setting(*GIVEN)
    (tmp_path / "model.setting").unlink()
    assert setting(*GIVEN) == ""
    tmp_path.rename(tmp_path.with_name("moved"))
    assert setting(*GIVEN, out=tmp_path.with_name("moved")) == ""


@pytest.mark.parametrize(
    "options,message",
    [
        (["--dropout", "0.3"], "--dropout 0.3 instead of 0.1"),
        (["--adaptive-span"], "--adaptive-span is new"),
        (["--update-freq", 2], "--batch-size 128 instead of 64"),
        (["--update-freq", "1,2"], "--update-freq 1,2 is new"),
        (["--arch=b", "--lr", "-1", "--seed", "2", "--dropout", "0"], "--arch b is new, --dropout 0 instead of 0.1, "
         "--lr -1 is new, and 1 more"),
    ],
)  # fmt: skip
def test_another_setting_is_refused(tmp_path, setting, options, message):
    """As soon as there is a checkpoint; the setting stays as it is."""
    setting(*GIVEN)
    assert setting(*GIVEN, *options) == "", "nothing is trained yet"
    setting(*GIVEN)
    trained(tmp_path)
    expected = f"has other options: {message}; choose another --out, or delete it"
    assert setting(*GIVEN, *options) == f"{tmp_path}/model: {expected}"
    assert setting(*GIVEN) == ""
    assert "--seed 1 is missing" in setting(*GIVEN[:5], *GIVEN[7:])
