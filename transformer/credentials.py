"""Messages that do not show the passwords in addresses and in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import unquote

SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
ADDRESSES = ("MLFLOW_TRACKING_URI", "CORPUS_MIRROR")
# People write / and @ into passwords without encoding them, so a message is masked up to the last @.
_USER = re.compile(r"://(\S*)@")
_FIELD = re.compile(r"([?&][^=&\s]*(?:pass|pwd|token|secret|key|signature|credential)[^=&\s]*=)[^&\s'\"]+", re.I)


def mask_credentials(text: str) -> str:
    """The text with *** for passwords, tokens and keys.

    These are: user and password of an address; fields like ?password=...; the values of the variables in SECRETS, and
    the password in each address of ADDRESSES, also where an error message has only a part of that address.
    """
    text = _USER.sub("://***@", _FIELD.sub(r"\1***", text))
    for secret in known_secrets():
        text = text.replace(secret, "***")
    return text


def known_secrets() -> Iterator[str]:
    """The passwords and tokens in this process's environment, as they are written there and decoded."""
    secrets = [os.environ.get(name, "") for name in SECRETS]
    for name in ADDRESSES:
        user = _USER.search(os.environ.get(name, ""))
        secrets.append(user[1].partition(":")[2] if user else "")
    for secret in secrets:
        if secret:
            yield from (secret, unquote(secret))
