# pyright: reportMissingImports=false
"""Make a site of README.md and docs/, by Zensical. It needs no network and no server, and its search works from files.

    python -m pipeline site     # `make docs`: build/site/index.html

Reads   README.md, docs/*.md, docs/images
Writes  build/pages, the same pages with formulas as MathML and without links to code; build/site
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.make.walkthrough import check_packages
from pipeline.workflow.stage import run
from transformer.files import Mistake, write_text

PAGES, SITE = Path("build/pages"), Path("build/site")
SETTINGS = """\
[project]
site_name = "transformer-pipeline"
site_description = "Train, compare and ship encoder-decoder Transformers for translation"
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
nav = [
  {{ "Home" = "index.md" }},
  {{ "The Transformer, line by line" = "walkthrough.md" }},
  {{ "Pages" = [{pages}] }},
]
[project.theme]
font = false
[project.plugins.offline]
"""
CDN = "https://unpkg.com/iframe-worker/shim"  # where Zensical's pages load a Worker for file: addresses from
# A Worker in a frame, since browsers start none from a file. The search is the only one that is started.
WORKER = """\
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const inner = frame.contentWindow;
    inner.postMessage = (data) => {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    };
    this.inner = inner;
    this.ready = new Promise((resolve) => {
      const script = inner.document.createElement("script");
      script.src = url;
      script.onload = resolve;
      inner.document.body.append(script);
    });
  }
  postMessage(data) {
    this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
  }
  terminate() {}
}
if (location.protocol === "file:") window.Worker = FrameWorker;
"""


def main() -> None:
    check_packages()
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    names = ["README.md", *sorted(str(path) for path in Path("docs").glob("*.md"))]
    for name in names:
        text = Path(name).read_text(encoding="utf-8")
        write_text(PAGES / ("index.md" if name == "README.md" else Path(name).name), for_site(name, text))
    shutil.copytree("docs/images", PAGES / "images")
    listed = ", ".join(f'"{Path(name).name}"' for name in names[1:] if "walkthrough" not in name)
    write_text(PAGES.parent / "zensical.toml", SETTINGS.format(pages=listed))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "zensical.toml"]
    done = subprocess.run(command, cwd=PAGES.parent, capture_output=True, text=True)
    if done.returncode:
        raise Mistake(
            f"Zensical found a mistake in {PAGES}. No site was made. {done.stdout[-2000:]}{done.stderr[-500:]}"
        )
    write_text(SITE / "assets/worker.js", WORKER)
    for page in SITE.glob("*.html"):
        write_text(page, page.read_text(encoding="utf-8").replace(CDN, "./assets/worker.js"))
    print(SITE / "index.html")


def for_site(name: str, text: str) -> str:
    """A page as the site has it: formulas as MathML, links between pages, and no links to other files."""
    from latex2mathml.converter import convert

    parts = re.split(r"(?ms)(^```.*?^```$|`[^`\n]+`)", text)
    for number, part in enumerate(parts):
        if number % 2 == 0:
            part = re.sub(r"(?s)\$\$(.+?)\$\$", lambda match: convert(match[1].strip(), display="block"), part)
            part = re.sub(r"\$([^$\n]+)\$", lambda match: convert(match[1]), part)
        parts[number] = part
    folder = "docs/" if name == "README.md" else ""
    pattern = r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)"
    return re.sub(pattern, lambda match: link(folder, *match.groups()), "".join(parts))


def link(folder: str, mark: str, words: str, target: str) -> str:
    """A link or picture of a page as the site has it. folder: where the pages of docs/ are, seen from this page."""
    if "://" in target or target.startswith("#"):
        return f"{mark}[{words}]({target})"
    target = target.replace("../README.md", "index.md")
    if folder and not target.startswith(folder):
        return words
    target = target.removeprefix(folder)
    known = target.startswith("images/") or re.fullmatch(r"[\w-]+\.md(#.*)?", target)
    return f"{mark}[{words}]({target})" if known else words


if __name__ == "__main__":
    run(main)
