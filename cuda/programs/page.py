"""The page of the docs with a table for each suite, between two comments that name it."""

import re


def marks(suite):
    return f"<!-- by cuda/programs {suite} -->\n", f"<!-- end of {suite} -->\n"


def table(rows):
    """A table that counts, and one that lists."""
    counts = {}
    for _, what, _ in rows:
        counts[what] = counts.get(what, 0) + 1
    lines = ["| outcome | programs |", "|---|--:|"]
    lines += [f"| {what} | {count} |" for what, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
    lines += ["", "| program | outcome | |", "|---|---|---|"]
    for name, what, reason in rows:
        reason = reason.replace("|", "\\|")
        room = 120 - len(f"| {name} | {what} |  |")
        lines.append(f"| {name} | {what} | {reason if len(reason) <= room else reason[:room - 1] + '…'} |")
    return "\n".join(lines) + "\n"


def merged(old, rows):
    """Rows in the place of those of the same programs in a table."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in old.splitlines() if line.startswith("| ")]
    known = [tuple(cell.strip().replace(r"\|", "|") for cell in row) for row in cells if len(row) == 3]
    new = {row[0] for row in rows}
    return [row for row in known if row[0] not in new and row[0] != "program"] + rows


def renew(page, suite, rows, whole):
    """Writes a suite's tables into the page, between the comments that name it."""
    start, end = marks(suite)
    text = page.read_text()
    if text.count(start) != 1 or text.count(end) != 1:
        raise SystemExit(f"{page}: wants the lines {start.strip()} and {end.strip()} once each")
    head, rest = text.split(start)
    old, tail = rest.split(end)
    rows = rows if whole else merged(old, rows)
    page.write_text(head + start + table(sorted(rows, key=lambda row: row[0].lower())) + end + tail)
