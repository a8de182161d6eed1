"""Conversations with `server-filesystem` and `server-memory` that use all of their tools."""

from pathlib import Path

from conversation import CLIENT, LEGACY, Step
from everything import call

__all__ = ["MEMORY_STEPS", "filesystem_steps", "prepare_files"]

HELLO = [
    Step("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}),
    Step("notifications/initialized"),
    Step("ping"),
]
LISTS = [Step(f"{kind}/list") for kind in ("tools", "resources", "resources/templates", "prompts")]

TEXT = 'naïve 😀 "quoted" \\ back\n'
SPECIAL_CHARACTERS = "\u0000\ufeff\u2028"


def prepare_files(folder: Path) -> None:
    """Reset a folder to the files that the conversation expects."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.mkdir(exist_ok=True)
    (folder / "inner").mkdir()
    (folder / "small.txt").write_text(TEXT, encoding="utf-8")
    (folder / "large.txt").write_text(TEXT * 4000, encoding="utf-8")
    (folder / "picture.png").write_bytes(bytes(range(256)) * 100)
    for number in range(300):
        (folder / "inner" / f"{number:04}.md").write_text(str(number))


def filesystem_steps(folder: Path) -> list[Step]:
    """Return the conversation with `server-filesystem`."""

    def path_of(name: str) -> str:
        return str(folder / name)

    return [
        *HELLO,
        *LISTS,
        call("list_allowed_directories"),
        *(call("read_text_file", path=path_of(name)) for name in ("small.txt", "large.txt", "none.txt")),
        call("read_text_file", path=path_of("large.txt"), head=2),
        call("read_text_file", path=path_of("large.txt"), tail=2),
        call("read_file", path=path_of("small.txt")),
        call("read_media_file", path=path_of("picture.png")),
        call("read_multiple_files", paths=[path_of("small.txt"), path_of("none.txt"), path_of("large.txt")]),
        call("write_file", path=path_of("new.txt"), content=TEXT + SPECIAL_CHARACTERS),
        call("write_file", path=path_of("new large.txt"), content=TEXT * 10_000),
        call("read_text_file", path=path_of("new.txt")),
        call("edit_file", path=path_of("new.txt"), edits=[{"oldText": "quoted", "newText": "$file"}], dryRun=True),
        call("edit_file", path=path_of("new.txt"), edits=[{"oldText": "quoted", "newText": "changed"}]),
        call("create_directory", path=path_of("made")),
        call("list_directory", path=path_of("inner")),
        call("list_directory_with_sizes", path=path_of("inner"), sortBy="name"),
        call("directory_tree", path=str(folder)),
        call("move_file", source=path_of("new.txt"), destination=path_of("made/moved.txt")),
        call("search_files", path=str(folder), pattern="**/*.md"),
        call("get_file_info", path=path_of("made/moved.txt")),
        call("read_text_file", path="/etc/hostname"),
        call("write_file", path=7),
    ]


def make_entity(number: int) -> dict[str, object]:
    return {"name": f"naïve {number}", "entityType": "thing", "observations": [f"has the number {number}"]}


MEMORY_STEPS = [
    *HELLO,
    *LISTS,
    call("read_graph"),
    call("create_entities", entities=[make_entity(number) for number in range(3)]),
    call("create_entities", entities=[make_entity(number) for number in range(1000)]),
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
