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
    lines += [row([name, what], reason) for name, what, reason in rows]
    return "\n".join(lines) + "\n"


def row(cells, reason):
    """A row whose last cell is cut off at the end of the line."""
    start, reason = f"| {' | '.join(cells)} | ", reason.replace("|", "\\|")
    room = 120 - len(f"{start} |")
    return f"{start}{reason if len(reason) <= room else reason[:room - 1] + '…'} |"


def merged(old, rows):
    """Rows in the place of those of the same programs in a table."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in old.splitlines() if line.startswith("| ")]
    known = [tuple(cell.strip().replace(r"\|", "|") for cell in row) for row in cells if len(row) == 3]
    new = {row[0] for row in rows}
    return [row for row in known if row[0] not in new and row[0] != "program"] + rows


def renew(page, suite, rows, whole):
    """Writes a suite's tables into the page."""
    in_order = lambda rows: sorted(rows, key=lambda row: row[0].lower())
    replace(page, suite, lambda old: table(in_order(rows if whole else merged(old, rows))))


def replace(page, suite, renewed):
    """Writes what is made of it in the place of what is between the comments that name a suite."""
    start, end = marks(suite)
    text = page.read_text()
    if text.count(start) != 1 or text.count(end) != 1:
        raise SystemExit(f"{page}: wants the lines {start.strip()} and {end.strip()} once each")
    head, rest = text.split(start)
    old, tail = rest.split(end)
    page.write_text(head + start + renewed(old) + end + tail)
