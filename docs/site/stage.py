# SPDX-License-Identifier: Apache-2.0
"""Prepares the repository's pages for Sphinx: one folder with every page, in the order in which they are read.

    stage.py REPOSITORY FOLDER [EXPLAIN_PAGES]

README.md becomes the first page and HACKING.md another. Links are rewritten to where their targets are in the site; a link to
a source file leads to a page that shows the file, so that the site needs nothing but itself. A link to something that does not
exist ends the program.
"""
import pathlib
import re
import shutil
import sys

# The reading order. Pages of docs/ that stand in neither list follow in "More".
USING = ["guide", "indexing", "glossary", "tiling", "tuning", "embedding", "python", "timeline", "checkers", "run-anything", "continuous-integration", "performance",
         "ladder", "coming-from", "ops"]
WORKING = ["hacking", "conformance", "checkers-mutants", "measurements/README", "notes/tiling-article"]

# A link, in groups; or code, in which nothing is a link. Read from left to right.
LINK_OR_CODE = re.compile(r"^```[\s\S]*?^```$|(?:^    [^\n]*\n)+|(!?\[[^\]]*\]\()([^)#\s]*)(#[^)\s]*)?(\))|`[^`\n]*`", re.M)
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".def": "cpp", ".in": "cpp", ".c": "c", ".cu": "cpp", ".py": "python",
             ".cmake": "cmake", ".md": "markdown"}


class Site:
    def __init__(self, repository, folder, explained):
        self.repository, self.folder, self.explained = repository, folder, explained
        self.sources = []  # files and folders that pages link to, to be shown
        self.missing = []

    def place(self, path):
        """Where a file of the repository is in the site."""
        relative = path.relative_to(self.repository)
        if relative == pathlib.Path("README.md"):
            return pathlib.Path("index.md")
        if relative == pathlib.Path("HACKING.md"):
            return pathlib.Path("hacking.md")
        if relative.parts[0] == "docs" and path.is_dir() and (path / "README.md").exists():
            return relative.relative_to("docs") / "README.md"
        if relative.parts[0] == "docs" and path.suffix in (".md", ".png", ".svg"):
            return relative.relative_to("docs")
        if path not in self.sources:
            self.sources.append(path)
        return pathlib.Path("source") / relative / "index.md" if path.is_dir() else pathlib.Path(f"source/{relative}.md")

    def rewrite(self, page, text):
        """The page's text with its links as they are in the site."""
        here = self.place(page).parent

        def link(match):
            before, target, anchor, after = match.groups()
            if before is None or not target or re.match(r"[a-z]+:", target):
                return match.group(0)
            path = (page.parent / target).resolve()
            if not path.exists():
                self.missing.append(f"{page.relative_to(self.repository)}: {target}")
                return match.group(0)
            up = pathlib.Path(*[".."] * len(here.parts))
            return f"{before}{up / self.place(path)}{anchor or ''}{after}"

        return LINK_OR_CODE.sub(link, text)

    def write(self, place, text):
        out = self.folder / place
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)

    def pages(self):
        docs = self.repository / "docs"
        pages = sorted(p for p in docs.rglob("*.md") if "site" not in p.relative_to(docs).parts)
        for page in [*pages, self.repository / "HACKING.md"]:
            self.write(self.place(page), self.rewrite(page, page.read_text()))
        shutil.copytree(docs / "images", self.folder / "images")
        names = [str(self.place(p).with_suffix("")) for p in pages] + ["hacking"]
        for folder in ("measurements", "notes"):
            self.list_folder(folder, names)
        placed = {*USING, *WORKING}
        more = [n for n in names if n not in placed and not n.startswith(("measurements/", "notes/"))]
        using = ["index"] + [n for n in USING if n in names] + (["explained"] if self.explained else []) + more
        self.front(using[1:], [n for n in WORKING if n in names])

    def list_folder(self, folder, names):
        """The dated pages below their index, newest last."""
        index = self.folder / folder / "README.md"
        inside = [n.split("/")[1] for n in names if n.startswith(f"{folder}/") and not n.endswith("/README")]
        if index.exists():
            index.write_text(index.read_text() + toctree(inside, hidden=True))

    def front(self, using, working):
        """README.md, with the list of all pages behind it."""
        readme = self.repository / "README.md"
        text = self.rewrite(readme, readme.read_text())
        self.write("index.md", text + toctree(using, "Using Imbrex", True) + toctree(working, "Working on Imbrex", True))

    def show_sources(self):
        """A page for each source file and folder that is linked to, and for what those folders hold."""
        for path in self.sources:  # grows while it is walked
            title = path.relative_to(self.repository)
            text = f"---\norphan: true\nnosearch: true\n---\n# {title}\n\n"
            if path.is_dir():
                entries = sorted(p for p in path.iterdir() if p.is_dir() or p.suffix in LANGUAGES)
                for entry in entries:
                    text += f"- [{entry.name}{'/' if entry.is_dir() else ''}]({self.from_source(path, entry)})\n"
            else:
                source = path.read_text(errors="replace")
                text += f"`````{LANGUAGES.get(path.suffix, 'text')}\n{source.rstrip()}\n`````\n"
            self.write(self.place(path), text)

    def from_source(self, here, entry):
        up = pathlib.Path(*[".."] * len(self.place(here).parent.parts))
        return up / self.place(entry)

    def explain(self):
        if not self.explained:
            return
        extra = self.folder / "_extra" / "explain"
        shutil.copytree(self.explained, extra, ignore=shutil.ignore_patterns("*.png"))
        text = ("# Kernels, explained\n\nOne page per kernel, written by `imbrex explain`: its tiles, the bytes of every statement, the roofs, "
                "occupancy, bank\nconflicts, the timeline, and source, IR and PTX side by side. `imbrex explore` is a page to play with tiles, "
                "banks and GPUs.\n\n")
        for page in sorted(extra.glob("*.html")):
            title = re.search("<title>([^<]*)", page.read_text())
            text += f'- <a href="explain/{page.name}">{title.group(1) if title else page.stem}</a>\n'
        self.write("explained.md", text)


def toctree(pages, caption="", hidden=False):
    options = (f":caption: {caption}\n" if caption else "") + (":hidden:\n" if hidden else "")
    return f"\n```{{toctree}}\n{options}\n" + "".join(f"{page}\n" for page in pages) + "```\n"


def main():
    repository, folder = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    explained = pathlib.Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else None
    site = Site(repository, folder, explained)
    site.explain()
    site.pages()
    site.show_sources()
    here = pathlib.Path(__file__).parent
    shutil.copy(here / "conf.py", folder)
    (folder / "_extra").mkdir(exist_ok=True)
    (folder / "_static").mkdir(exist_ok=True)
    shutil.copy(here / "site.css", folder / "_static")
    for line in site.missing:
        print(f"broken link: {line}", file=sys.stderr)
    sys.exit(1 if site.missing else 0)


main()
