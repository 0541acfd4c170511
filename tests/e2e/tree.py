#!/usr/bin/python3
"""What a screen reader is told: for every line on standard input, one JSON line with the accessible tree of the app of that name.

Each node is {"role", "name", "text", "states", "depth"}, in the order of reading; an app that is not there (yet) has no nodes.
Needs PyGObject and AT-SPI (Debian: python3-gi, gir1.2-atspi-2.0).
"""

import json
import sys

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402

STATES = [Atspi.StateType.FOCUSED, Atspi.StateType.FOCUSABLE, Atspi.StateType.SHOWING, Atspi.StateType.CHECKED]


def text_of(node):
    text = node.get_text_iface()
    return Atspi.Text.get_text(text, 0, Atspi.Text.get_character_count(text)) if text else ""


def walk(node, depth, nodes):
    # What is read may be gone before all of it was.
    try:
        node.clear_cache()
        states = node.get_state_set()
        nodes.append(
            {
                "role": node.get_role_name(),
                "name": node.get_name() or "",
                "text": text_of(node),
                "states": [state.value_nick for state in STATES if states.contains(state)],
                "depth": depth,
            }
        )
        children = [node.get_child_at_index(i) for i in range(node.get_child_count())]
    except GLib.Error:
        return
    for child in children:
        if child is not None:
            walk(child, depth + 1, nodes)


def tree(name):
    desktop = Atspi.get_desktop(0)
    nodes = []
    for index in range(desktop.get_child_count()):
        app = desktop.get_child_at_index(index)
        if app is not None and app.get_name() == name:
            walk(app, 0, nodes)
    return nodes


Atspi.init()
for line in sys.stdin:
    # Changes are delivered by the main loop.
    while GLib.MainContext.default().iteration(False):
        pass
    try:
        print(json.dumps(tree(line.strip())), flush=True)
    except GLib.Error as error:
        print(json.dumps({"error": str(error)}), flush=True)
