#!/usr/bin/python3
"""A desktop's place for icons, without a desktop: stands in for it on the session bus, so that a test can read the app's icon and
click its menu. Needs PyGObject (Debian: python3-gi).

Writes one JSON object a line to standard output and takes one command a line on standard input:

    ready                     (output) the name on the bus is ours
    icon                      -> {"icon": {"id", "status", "name"}}; name is the path of the picture that is shown
    menu                      -> {"menu": [{"id", "label", "enabled", "checked"}]}; checked is null for what is no switch
    click LABEL               -> {"clicked": LABEL}; the first item whose label begins so
    leave, come               gives the name up and takes it again -> {"left": true}, "ready"
    quit

An item that registers itself is told of as {"item": PATH}; what goes wrong as {"error": TEXT}.
"""

import json
import os
import sys

import gi

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib  # noqa: E402

WATCHER = "org.kde.StatusNotifierWatcher"
ITEM = "org.kde.StatusNotifierItem"
MENU = "com.canonical.dbusmenu"
INTERFACE = f"""
<node><interface name="{WATCHER}">
  <method name="RegisterStatusNotifierItem"><arg type="s" direction="in"/></method>
  <method name="RegisterStatusNotifierHost"><arg type="s" direction="in"/></method>
  <property name="RegisteredStatusNotifierItems" type="as" access="read"/>
  <property name="IsStatusNotifierHostRegistered" type="b" access="read"/>
  <property name="ProtocolVersion" type="i" access="read"/>
  <signal name="StatusNotifierItemRegistered"><arg type="s"/></signal>
  <signal name="StatusNotifierHostRegistered"/>
</interface></node>"""


def say(**what):
    print(json.dumps(what), flush=True)


class Host:
    def __init__(self):
        self.loop = GLib.MainLoop()
        self.bus = Gio.bus_get_sync(Gio.BusType.SESSION)
        self.item = None
        self.rest = b""
        info = Gio.DBusNodeInfo.new_for_xml(INTERFACE).interfaces[0]
        self.bus.register_object("/StatusNotifierWatcher", info, self.on_call, self.on_get, None)
        self.come()

    def come(self):
        self.owner = Gio.bus_own_name_on_connection(
            self.bus, WATCHER, Gio.BusNameOwnerFlags.NONE, lambda *_: say(ready=True), lambda *_: say(error="the name is taken")
        )

    def leave(self):
        Gio.bus_unown_name(self.owner)
        self.item = None
        say(left=True)

    def on_call(self, bus, sender, path, interface, method, arguments, invocation):
        invocation.return_value(None)
        if method == "RegisterStatusNotifierItem":
            # Some give the path of their item, some the name of its owner.
            given = arguments.unpack()[0]
            self.item = (sender, given) if given.startswith("/") else (given, "/StatusNotifierItem")
            say(item=self.item[1])

    def on_get(self, bus, sender, path, interface, name):
        return {
            "RegisteredStatusNotifierItems": GLib.Variant("as", [self.item[1]] if self.item else []),
            "IsStatusNotifierHostRegistered": GLib.Variant("b", True),
            "ProtocolVersion": GLib.Variant("i", 0),
        }[name]

    def call(self, path, interface, method, arguments):
        if not self.item:
            raise LookupError("no item has registered itself")
        return self.bus.call_sync(self.item[0], path, interface, method, arguments, None, 0, 5000, None).unpack()

    def properties(self):
        arguments = GLib.Variant("(s)", (ITEM,))
        return self.call(self.item[1] if self.item else "/", "org.freedesktop.DBus.Properties", "GetAll", arguments)[0]

    def entries(self):
        menu = self.properties()["Menu"]
        _, tree = self.call(menu, MENU, "GetLayout", GLib.Variant("(iias)", (0, -1, [])))
        found = []

        def walk(node):
            number, properties, children = node
            if "label" in properties:
                checked = properties.get("toggle-state") == 1 if "toggle-type" in properties else None
                # An underscore marks a letter, two are one.
                label = properties["label"].replace("__", "\0").replace("_", "").replace("\0", "_")
                found.append({"id": number, "label": label, "enabled": properties.get("enabled", True), "checked": checked})
            for child in children:
                walk(child)

        walk(tree)
        return menu, found

    def run(self, line):
        command, _, rest = line.strip().partition(" ")
        if command == "icon":
            shown = self.properties()
            say(icon={"id": shown.get("Id"), "status": shown.get("Status"), "name": shown.get("IconName")})
        elif command == "menu":
            say(menu=self.entries()[1])
        elif command == "click":
            menu, entries = self.entries()
            entry = next((e for e in entries if e["label"].startswith(rest)), None)
            if entry is None:
                raise LookupError(f"no item is called {rest}: {[e['label'] for e in entries]}")
            self.call(menu, MENU, "Event", GLib.Variant("(isvu)", (entry["id"], "clicked", GLib.Variant("i", 0), 0)))
            say(clicked=entry["label"])
        elif command == "leave":
            self.leave()
        elif command == "come":
            self.come()
        elif command == "quit":
            self.loop.quit()
        elif command:
            raise LookupError(f"not a command: {command}")

    def on_input(self, source, condition):
        got = os.read(source, 4096)
        if not got:
            self.loop.quit()
            return False
        *lines, self.rest = (self.rest + got).split(b"\n")
        for line in lines:
            try:
                self.run(line.decode())
            except (GLib.Error, LookupError) as error:
                say(error=str(error))
        return True


host = Host()
GLib.io_add_watch(sys.stdin.fileno(), GLib.PRIORITY_DEFAULT, GLib.IO_IN | GLib.IO_HUP, host.on_input)
host.loop.run()
