"""Cards: what a notebook shows of a result, as HTML that needs nothing else. Names of files never become code."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from vrnet.evaluation.verdict import Verdict
from vrnet.report.template import render_template

CARD_SIDE_PIXELS = 176
"""The longer side of each picture of a card."""


@dataclass(frozen=True)
class Card:
    """What a card shows."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    """Names and values, one row each."""
    picture: bytes = b""
    """A PNG file."""
    caption: str = ""
    """What the picture shows."""
    verdict: Verdict | None = None

    def html(self) -> str:
        """The card, as a notebook takes it."""
        shown = {name: getattr(self, name) for name in ("title", "facts", "caption", "verdict")}
        return render_template("card.html", **shown, picture=b64encode(self.picture).decode())
