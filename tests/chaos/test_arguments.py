"""What a run says if it is asked for what does not exist, or if the machine cannot have it."""

import pytest

from tests.chaos.arguments import NotPossible, check_machine, parsed


@pytest.mark.parametrize("arguments", [["--kinds", "earthquake"], ["--foreign", "cobol"], ["--nodes", "2"]])
def test_unknown_choices_are_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With the choices that there are."""
    with pytest.raises(SystemExit) as ended:
        parsed(arguments)
    assert ended.value.code == 2
    assert arguments[1] in capsys.readouterr().err


def test_a_machine_without_root_or_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text holds the remedy."""
    monkeypatch.setattr("shutil.which", lambda program: None)
    with pytest.raises(NotPossible, match="apt-get install -y e2fsprogs iproute2 mount util-linux"):
        check_machine()
    monkeypatch.setattr("shutil.which", lambda program: program)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(NotPossible, match="run it as root, for example with sudo"):
        check_machine()
