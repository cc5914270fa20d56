import subprocess
import sys

import pytest

from paiq.cli.main import VERBS, main


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_teaches(verb, capsys):
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    assert left.value.code == 0
    assert "example" in capsys.readouterr().out


def test_an_unknown_verb_is_answered_with_the_nearest(capsys):
    assert main(["docter"]) == 2
    assert "Did you mean 'doctor'" in capsys.readouterr().err


def test_interfaces_lists_counts_to_the_digit(capsys):
    assert main(["interfaces", "paiq", "--hidden-size", "4096"]) == 0
    assert "58,728,448" in capsys.readouterr().out


def test_doctor_finds_what_is_needed(capsys):
    assert main(["doctor"]) == 0
    assert "torch" in capsys.readouterr().out


def test_a_stop_from_the_scheduler_is_told_like_ctrl_c():
    code = (
        "import os, signal, sys\n"
        "from paiq.cli import doctor\n"
        "from paiq.cli.main import main\n"
        "doctor.run = lambda args: os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(main(['doctor']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert "run the same command again" in done.stderr
