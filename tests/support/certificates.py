"""Certificates for tests, made by openssl: a CA, a broker's, a client's, and such that must be refused."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.jars import need

OPENSSL: Final = "apt-get install -y openssl"
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
PASSWORD: Final = "key-s3cret"


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files in a folder, each with its private key behind the certificate."""

    folder: Path

    @property
    def ca(self) -> str:
        """The CA's certificate."""
        return str(self.folder / "ca.pem")

    @property
    def other_ca(self) -> str:
        """A CA that has issued none of these."""
        return str(self.folder / "other_ca.pem")

    def issued(
        self, name: str, *, names: str = "DNS:localhost,IP:127.0.0.1", days: int = 365, password: str = ""
    ) -> str:
        """Issue a certificate for `names`; negative `days` are over. Returns the file with certificate, CA and key."""
        key, request, issued = (str(self.folder / f"{name}.{suffix}") for suffix in ("key", "csr", "crt"))
        secret = ["-passout", f"pass:{password}"] if password else ["-nodes"]
        _openssl("req", *_KEY, *secret, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        signing = ("-CA", self.ca, "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial")
        _openssl(
            "x509", "-req", "-in", request, *signing, "-days", str(days), "-extfile", str(extensions), "-out", issued
        )
        whole = self.folder / f"{name}.pem"
        whole.write_text("".join(Path(file).read_text() for file in (issued, self.ca, key)))
        return str(whole)


def make(folder: Path) -> Certificates:
    """Make the two CAs in a folder."""
    for name in ("ca", "other_ca"):
        files = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"))
        _openssl("req", "-x509", *_KEY, "-nodes", *files, "-days", "3650", "-subj", f"/CN=test {name}")
    return Certificates(folder)


def _openssl(*arguments: str) -> None:
    done = subprocess.run([need("openssl", OPENSSL), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
