"""Conversations with `server-filesystem` and `server-memory` that use every tool they have."""

from pathlib import Path

from conversation import CLIENT, LEGACY, Step
from everything import call

__all__ = ["GRAPHS", "files", "prepared"]

HELLO = [
    Step("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}),
    Step("notifications/initialized"),
    Step("ping"),
]
LISTS = [Step(f"{kind}/list") for kind in ("tools", "resources", "resources/templates", "prompts")]

TEXT = 'naïve 😀 "quoted" \\ back\n'
UNWELCOME = "\u0000\ufeff\u2028"


def prepared(folder: Path) -> None:
    """The same files, whoever was there before."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.mkdir(exist_ok=True)
    (folder / "inner").mkdir()
    (folder / "small.txt").write_text(TEXT, encoding="utf-8")
    (folder / "large.txt").write_text(TEXT * 4000, encoding="utf-8")
    (folder / "picture.png").write_bytes(bytes(range(256)) * 100)
    for number in range(300):
        (folder / "inner" / f"{number:04}.md").write_text(str(number))


def files(folder: Path) -> list[Step]:
    """What is said to `server-filesystem`."""

    def at(name: str) -> str:
        return str(folder / name)

    return [
        *HELLO,
        *LISTS,
        call("list_allowed_directories"),
        *(call("read_text_file", path=at(name)) for name in ("small.txt", "large.txt", "none.txt")),
        call("read_text_file", path=at("large.txt"), head=2),
        call("read_text_file", path=at("large.txt"), tail=2),
        call("read_file", path=at("small.txt")),
        call("read_media_file", path=at("picture.png")),
        call("read_multiple_files", paths=[at("small.txt"), at("none.txt"), at("large.txt")]),
        call("write_file", path=at("new.txt"), content=TEXT + UNWELCOME),
        call("write_file", path=at("new large.txt"), content=TEXT * 10_000),
        call("read_text_file", path=at("new.txt")),
        call("edit_file", path=at("new.txt"), edits=[{"oldText": "quoted", "newText": "$file"}], dryRun=True),
        call("edit_file", path=at("new.txt"), edits=[{"oldText": "quoted", "newText": "changed"}]),
        call("create_directory", path=at("made")),
        call("list_directory", path=at("inner")),
        call("list_directory_with_sizes", path=at("inner"), sortBy="name"),
        call("directory_tree", path=str(folder)),
        call("move_file", source=at("new.txt"), destination=at("made/moved.txt")),
        call("search_files", path=str(folder), pattern="**/*.md"),
        call("get_file_info", path=at("made/moved.txt")),
        call("read_text_file", path="/etc/hostname"),
        call("write_file", path=7),
    ]


def _entity(number: int) -> dict[str, object]:
    return {"name": f"naïve {number}", "entityType": "thing", "observations": [f"has the number {number}"]}


GRAPHS = [
    *HELLO,
    *LISTS,
    call("read_graph"),
    call("create_entities", entities=[_entity(number) for number in range(3)]),
    call("create_entities", entities=[_entity(number) for number in range(1000)]),
    call("create_relations", relations=[{"from": "naïve 1", "to": "naïve 2", "relationType": "comes before"}]),
    call("add_observations", observations=[{"entityName": "naïve 1", "contents": ["😀", '"\\']}]),
    call("add_observations", observations=[{"entityName": "nobody", "contents": ["x"]}]),
    call("read_graph"),
    call("search_nodes", query="number 7"),
    call("open_nodes", names=["naïve 1", "naïve 2"]),
    call("delete_observations", deletions=[{"entityName": "naïve 1", "observations": ["😀"]}]),
    call("delete_relations", relations=[{"from": "naïve 1", "to": "naïve 2", "relationType": "comes before"}]),
    call("delete_entities", entityNames=["naïve 1"]),
    Step("resources/read", {"uri": "memory://knowledge-graph"}),
    call("read_graph", unknown=1),
]
