"""Messages that do not show the passwords in addresses and in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import quote, unquote, urlsplit

from transformer.files import Mistake

SECRETS = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
ADDRESSES = ("MLFLOW_TRACKING_URI", "CORPUS_MIRROR")
# People write /, @ and spaces into passwords without encoding them, so an address is masked up to its last @.
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
        user, _, _ = os.environ.get(name, "").partition("://")[2].rpartition("@")
        secrets.append(user.partition(":")[2])
    for secret in secrets:
        if secret:
            yield from {secret, unquote(secret), quote(secret, safe="")}


def check_address(address: str, name: str) -> str:
    """The address. Raises Mistake, which does not show it, if its password cannot be told from its host.

    name: of what contains the address, for the message.
    """
    user, at, _ = address.partition("://")[2].rpartition("@")
    try:
        _ = urlsplit(address).port  # raises ValueError, as for brackets in a password, or letters in a port
        if not at or user.startswith("/") or not re.search(r"\s", user):
            return address
    except ValueError:
        pass
    raise Mistake(
        f"{name} is not an address, or its password cannot be told from its host. In a password write %20 for a space, "
        "%2F for /, %3F for ?, %23 for #, %5B for [."
    )
