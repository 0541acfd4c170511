"""What Jinja2, as transformers sets it up, makes of small templates: writes tests/fixtures/templates/semantics.json.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install -r tests/oracles/text/requirements.txt
    /tmp/venv/bin/python tests/oracles/text/semantics.py
"""
import datetime
import json
import pathlib

from transformers.utils import chat_template_utils as reference

OUT = pathlib.Path(__file__).parents[2] / "fixtures/templates/semantics.json"


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 5, 9, 3, 7, 42)


reference.datetime = Clock

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b> & \"you\" 日本語 👩🏽‍🚀"},
    {"role": "assistant", "content": "Hello\n", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None, True], "s": "é\"\\\n\t\x07"}}}]},
    {"role": "tool", "content": "42", "name": None},
    {"role": "user", "content": [{"type": "text", "text": "look "}, {"type": "image"}, {"type": "text", "text": "here"}]},
]
VARIABLES = {
    "tools": [{"type": "function", "function": {"name": "weather", "description": "Wetter für <Ort>", "parameters": {
        "type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}, "values": {"type": "number"},
                                         "get": {"type": "string", "enum": ["a", "b"]}}, "required": ["items"]}}}],
    "flag": True, "off": False, "zero": 0, "big": 10**15, "huge": 18446744073709551615, "float": 2.5, "tiny": 1.5e-7, "wide": 1e16,
    "whole": 3.0, "negative": -7, "text": "Hello World", "spaces": "  a  b \n", "lines": "one\r\ntwo\nthree\n", "empty": "",
    "list": [3, 1, 2], "nested": [[1, 2], [3]], "map": {"b": 1, "a": {"c": [1, "x'y", "it's \"q\""]}, "1": None},
    "people": [{"name": "Ann", "age": 30}, {"name": "bob", "age": 25}, {"name": "Cid"}], "nothing": None,
    "enable_thinking": False, "bos_token": "<s>", "eos_token": "</s>", "unicode": "straße ǅ ﬁ İ",
}

# One template a line; `|||` separates those with line breaks inside.
CASES = r"""
{{ text }} {{ nothing }} {{ flag }} {{ off }} {{ zero }} {{ float }} {{ tiny }} {{ wide }} {{ whole }} {{ big }} {{ huge }}
{{ list }} {{ nested }} {{ map }} {{ people }} {{ (1, 'a') }} {{ (1,) }} {{ {} }} {{ [] }} {{ () }}
{{ missing }}|{{ missing is defined }}|{{ missing is undefined }}|{{ missing is none }}|{{ nothing is none }}
{{ missing.x }}
{{ missing['x'] }}
{{ missing() }}
{{ missing + 'x' }}
{{ 'x' + missing }}
{{ 'x' ~ missing ~ 1 ~ none ~ true ~ 1.0 }}
{{ missing == missing }} {{ missing == none }} {{ missing == '' }} {{ not missing }}
{{ missing | length }} {{ missing | default('d') }} {{ nothing | default('d') }} {{ nothing | default('d', true) }} {{ '' | d('e', true) }}
{% for x in missing %}x{% else %}none{% endfor %}
{{ 'a' in missing }}
{{ map.missing }}|{{ map.a.missing }}|{{ map['zz'] }}
{{ map.missing.deeper }}
{{ map.a.c[5] }}|{{ list[10] }}|{{ list[-1] }}|{{ list[-9] }}
{{ nothing.x }}|{{ nothing['x'] }}|{{ zero.x }}|{{ text.x }}
{{ nothing + 'a' }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ 'a' * 3 }} {{ [1] * 2 }} {{ [1] + [2, 3] }} {{ 'a' 'b' }}
{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ 1 / 1 }}
{{ 1 / 0 }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ none == false }} {{ [1] == [1] }} {{ map == map }} {{ (1, 2) == [1, 2] }}
{{ 1 < 2 < 3 }} {{ 'a' < 'b' }} {{ 3 > 2 and 1 }} {{ 0 or 'x' }} {{ '' or none }} {{ not 1 }}
{{ 'ell' in text }} {{ 'x' in text }} {{ 1 in list }} {{ 'a' in map }} {{ 'role' in messages[0] }} {{ 5 not in list }}
{{ text[0] }} {{ text[-1] }} {{ text[1:3] }} {{ text[::-1] }} {{ text[:-2] }} {{ list[1:] }} {{ list[::-1] }} {{ list[5:] }} {{ list[:0] }}
{{ messages[1:] | length }} {{ messages[::-1][0].role }} {{ messages[-1]['role'] }} {{ (messages | length) - 1 }}
{{ messages.0.role }} {{ list.1 }}
{{ text.upper() }} {{ text.lower() }} {{ text.title() }} {{ text.capitalize() }} {{ text.swapcase() }} {{ unicode.upper() }}
{{ text.startswith('He') }} {{ text.endswith(('x', 'ld')) }} {{ text.startswith('e', 1) }}
{{ text.startswith(['x']) }}
{{ text.find('o') }} {{ text.rfind('o') }} {{ text.find('z') }} {{ text.index('W') }} {{ text.count('l') }} {{ text.replace('l', 'L', 2) }}
{{ text.index('z') }}
{{ spaces.strip() }}|{{ spaces.lstrip() }}|{{ spaces.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.lstrip('ab') }}|{{ spaces.strip('\n') }}|
{{ '\x1ca\x1f'.strip() }}|{{ '\u00a0a\u3000'.strip() }}|{{ '\u200ba'.strip() }}
{{ spaces.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(None, 1) }} {{ 'a b  c '.split(maxsplit=1) }} {{ ''.split(',') }} {{ ''.split() }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a</think>b</think>c'.split('</think>')[-1] }} {{ 'abc'.split('</think>')[0] }} {{ 'a b'.rsplit() }}
{{ 'a'.split('') }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\x0bb\u2028c'.splitlines() }} {{ ''.splitlines() }} {{ '\n'.splitlines() }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}
{{ 'unhappy'.removeprefix('un') }} {{ 'file.txt'.removesuffix('.txt') }} {{ 'x'.removeprefix('y') }}
{{ 'a'.ljust(3, '.') }}|{{ 'a'.rjust(3) }}|{{ '7'.zfill(3) }}|{{ '-7'.zfill(4) }}|{{ 'abc'.zfill(2) }}
{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ ''.isdigit() }} {{ '12'.isdecimal() }}
{{ ', '.join(['a', 'b']) }} {{ '-'.join('abc') }} {{ ['a', 1] | join('|') }} {{ people | join(', ', attribute='name') }}
{{ '{} and {}'.format('a', 1) }} {{ '{x}'.format(x=2) }} {{ '%s' | format('z') }}
{{ map.items() | list }} {{ map.keys() | list }} {{ map.values() | list }} {{ map.get('b') }} {{ map.get('z') }} {{ map.get('z', 'd') }} {{ map | length }}
{{ map.items() | length }} {{ 'b' in map.keys() }} {{ map.keys() | first }}
{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in map %}{{ k }};{% endfor %}{% for k, v in map | items %}{{ k }}{% endfor %}{% for k, v in map | dictsort %}{{ k }}{% endfor %}
{% set p = tools[0].function.parameters.properties %}{% for k, v in p.items() %}{{ k }}:{{ v.type }};{% endfor %}{{ p['items'].type }} {{ p['values'].type }} {{ p.keys() | list }} {{ p.get('get') }} {{ p['get'].enum }}
{% set p = tools[0].function.parameters.properties %}{{ p.items is defined }} {{ p.values is callable }} {% if p['items'] %}{{ p['items']['items'] }}{% endif %}
{{ map.update({'x': 1}) }}
{{ list.append(1) }}
{{ list.pop() }}
{{ map.pop('a') }}
{% set m = {'a': 1} %}{{ m.setdefault('b', 2) }}
{{ list.index(1) }} {{ list.count(3) }} {{ list.copy() }} {{ map.copy() == map }}
{{ list.index(9) }}
{{ dict(a=1, b='x') }} {{ dict([('k', 1)]) }} {{ dict({'a': 1}, b=2) }} {{ dict(map).b }}
{{ list | sort }} {{ list | sort(reverse=true) }} {{ list | reverse | list }} {{ list | min }} {{ list | max }} {{ list | sum }} {{ list | first }} {{ list | last }} {{ [] | first }}
{{ people | map(attribute='name') | list }} {{ people | selectattr('age') | map(attribute='name') | list }} {{ people | selectattr('age', 'equalto', 25) | list | length }} {{ people | rejectattr('age', 'defined') | list }}
{{ people | selectattr('age', 'defined') | sort(attribute='age') | map(attribute='name') | join(',') }} {{ list | map('string') | join }} {{ list | select('odd') | list }} {{ list | reject('odd') | list }}
{{ people | map(attribute='age', default=0) | list }} {{ [1, 1, 2] | unique | list }} {{ people | groupby('age', default=0) | length }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ (messages | selectattr('role', '==', 'system') | first).content }} {{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | join('-') }}
{{ text | upper }} {{ text | lower }} {{ text | title }} {{ text | capitalize }} {{ spaces | trim }}|{{ '..a..' | trim('.') }} {{ text | replace('l', 'L') }} {{ text | length }} {{ text | count }} {{ text | list }} {{ text | reverse }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent(width=1, first=true) }}
{{ '3' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ '2.5' | float }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3 | string }} {{ wide | string }} {{ nothing | string }} {{ map | string }} {{ -3 | abs }}
{{ text | safe }} {{ text | e }} {{ '<b>' | escape }} {{ '<b>' | safe }} {{ ('<b>' | escape) ~ '<' }}
{{ 'a b c' | batch(2) | list }} {{ [1, 2, 3] | slice(2) | list }} {{ 1 | pprint }}
{{ map | tojson }} {{ messages[2].tool_calls | tojson }}
{{ messages[1].content | tojson }} {{ messages[1].content | tojson(ensure_ascii=true) }} {{ messages[1].content | tojson(true) }}
{{ map | tojson(indent=2) }}
{{ map | tojson(indent=0) }} {{ [] | tojson(indent=4) }} {{ {} | tojson(indent=4) }} {{ [[]] | tojson(indent=1) }}
{{ map | tojson(separators=(',', ':')) }} {{ map | tojson(sort_keys=true) }} {{ map | tojson(indent='--') }}
{{ float | tojson }} {{ tiny | tojson }} {{ wide | tojson }} {{ whole | tojson }} {{ huge | tojson }} {{ nothing | tojson }} {{ flag | tojson }} {{ (1, 2) | tojson }} {{ {1: 2, true: 3, none: 4, 1.5: 5} | tojson }}
{{ missing | tojson }}
{{ tools | tojson(indent=4) }}
{{ tools[0] | tojson }} {{ tools[0].function | tojson | length }}
{{ '\x7f\u2028/</script>' | tojson }}
{{ text is string }} {{ list is string }} {{ map is mapping }} {{ list is mapping }} {{ list is sequence }} {{ text is sequence }} {{ map is sequence }} {{ 1 is sequence }} {{ (1,) is sequence }}
{{ text is iterable }} {{ map is iterable }} {{ 1 is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ list is iterable }}
{{ 1 is number }} {{ 1.0 is number }} {{ true is number }} {{ '1' is number }} {{ 1 is integer }} {{ 1.0 is integer }} {{ 1.0 is float }} {{ true is integer }} {{ true is boolean }} {{ 1 is boolean }}
{{ flag is true }} {{ off is false }} {{ 1 is true }} {{ enable_thinking is false }} {{ enable_thinking is defined and not enable_thinking }} {{ none is none }} {{ 1 is odd }} {{ 2 is even }} {{ 6 is divisibleby(3) }} {{ 6 is divisibleby 3 }}
{{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 1 is in [1] }} {{ 'a' is in 'abc' }} {{ 1 is sameas 1 }} {{ 'A' is upper }} {{ 'a' is lower }} {{ raise_exception is callable }} {{ text is callable }} {{ text is not string }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}{% for i in [1] %}{% set x = 3 %}{% endfor %}{{ x }}
{% set ns = namespace(a=1, b=[]) %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.missing is defined }}
{% set ns = namespace() %}{% set ns.x = 'y' %}{{ ns.x }}{% set ns = namespace({'k': 1}) %}{{ ns.k }}
{% set x.y = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = (3, 4) %}{{ c }}{{ d }}{% set e = 1, 2 %}{{ e }}
{% set t %}block {{ text }}{% endset %}{{ t }}|{{ t | length }}|{% set u | upper %}abc{% endset %}{{ u }}
{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('o', 'e') }}{{ loop.depth }} {% endfor %}
{% for i in list if i > 1 %}{{ i }}{{ loop.length }}{% endfor %}{% for i in [] %}{% else %}empty{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in range(2, 10, 3) %}{{ i }},{% endfor %}{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}{{ range(3) | list }} {{ range(3) | length }}
{% for i in nested recursive %}{{ i if i is number else '(' ~ loop(i) ~ ')' }}{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}{% for c in 'añ' %}{{ c }}.{% endfor %}
{% for i in [1, 2] %}{% set outer = loop %}{% for j in [1] %}{{ outer.index }}{{ loop.index }}{% endfor %}{% endfor %}
{% macro m(a, b='x', c=none) %}{{ a }}{{ b }}{{ c }}{{ text }}{% endmacro %}{{ m(1) }} {{ m(1, b=2) }} {{ m(c=3, a=1) }} {{ m() }}
{% macro f(x) -%} {{- x }}{%- if x > 0 %},{{ f(x - 1) }}{% endif %}{%- endmacro %}{{ f(3) }}
{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}in{% endcall %}
{% macro now() %}{{ strftime_now('%Y') }}{{ raise_exception is defined }}{% endmacro %}{{ now() }}
{{ strftime_now('%d %B %Y') }} {{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%H:%M:%S') }} {{ strftime_now('%A, %-d. %b %y %I:%M %p') }} {{ strftime_now('100%') }}
{{ raise_exception('no ' ~ text) }}
{% if missing %}{{ raise_exception('never') }}{% endif %}fine
{{ 'a' if flag }} {{ 'a' if off else 'b' }} {{ 'x' if off }}| {{ ('a' if off) is defined }}
{%- if flag -%} yes {%- elif off -%} no {%- else -%} else {%- endif -%}  {{- ' end' }}
{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
{% raw %}{{ not }} {% rendered %}{% endraw %}
{# comment #}a{#- comment -#} b {#- c #}
{% filter upper %}abc {{ text }}{% endfilter %}
{% block b %}in block{% endblock %}
{% generation %}{{ text }}{% endgeneration %}|{%- generation -%} {{ text }} {%- endgeneration -%}|
{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}
{% do list.append(1) %}
{% include 'x' %}
{% import 'x' as y %}
{{ joiner(',')() }}x
{{ text.__class__ }}
{{ [].__class__.__mro__ }}
{{ messages[2].tool_calls[0].function.arguments.y }} {{ messages[3].name is defined }} {{ messages[3]['name'] is defined }} {{ messages[4].content[0].text }}
{% for part in messages[4].content %}{% if part.type == 'image' %}<img>{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}
{{ bos_token }}{{ eos_token }}{{ tools is defined }}{{ documents is defined }}{{ documents is none }}{{ add_generation_prompt }}
{{ messages | length }} {{ messages[0] }}
{{ "it's" }} {{ 'say "hi"' }} {{ 'a\\b' }} {{ "tab\there" }} {{ 'uni\u00e9' }} {{ '\'' }} {{ ['it\'s', 'a"b', 'c\\d', 'e\nf', 'é', '\x00'] }}
{{ 1_000 }} {{ 1e3 }} {{ 0x1f }} {{ 1.5e-3 }} {{ 0b11 }} {{ 10.0 }} {{ -0.0 }} {{ 1e400 }}
{{ 1 ~ 2 }} {{ -1 }} {{ 2 * 3 + 1 }} {{ (1 + 2) * 3 }} {{ 10 - 2 - 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ not true == false }}
{{ true and 'a' or 'b' }} {{ True }} {{ False }} {{ None }} {{ none }} {{ True is true }}
{{ [1, 2, 3][1:][0] }} {{ 'abc'[1] }} {{ {'a': {'b': 1}}.a.b }} {{ {'a': 1}['a'] }} {{ {'items': 5}['items'] }} {{ [{'a': 1}][0].a }}
{{ text | default | upper | lower }} {{ (text | upper).lower() }} {{ text.upper().lower() | title }} {{ 'a' ~ 'b' | upper }} {{ -1 | abs }} {{ 'a,b' .split(',') }}
{{ list | tojson }} {{ list | join(', ') }} {{ [none, true, 1.0] | join(',') }} {{ [[1, 'a']] | join }} {{ [] | join(',') }}
{{ people | map(attribute='name') | map('lower') | list }} {{ people[0].get('age', 0) + 1 }} {{ people[2].get('age', 0) + 1 }} {{ people | map('length') | list }}
{{ list | batch(2) | map('list') | list }} {{ nested | sum(start=[]) }} {{ nested | map('first') | list }}
{% set s = 'x' %}{% for i in range(3) %}{% set s = s ~ i %}{% endfor %}{{ s }}
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set sys = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% endif %}{{ loop_messages | length }}{{ sys }}
{% if (messages[0]['role'] == 'user') != (0 % 2 == 0) %}odd{% endif %}{{ ((1 % 2) == 0) }}
{{ messages[0].content.strip() + '\n' }}{{ messages[0]['content'] | trim }}{{ '<|' + messages[0].role + '|>' }}
{{ 5 | length }}
{{ none | length }}
{% for x in 5 %}{% endfor %}
{{ text | nosuchfilter }}
{{ text is nosuchtest }}
{{ nosuchfunction(1) }}
{% nosuchtag %}
{% if %}
{{ unclosed
{% for x in list %}
{{ 'a' 1 }}
{{ }}
{{ text.nosuchmethod() }}
{{ list.strip() }}
{{ list['a'] }}
{{ text['a'] }}
{{ map[none] }}|{{ map[list] }}
{{ 'é' | length }} {{ '👩🏽‍🚀' | length }} {{ '👩🏽‍🚀'[0] }} {{ '日本語'[1:] }} {{ 'é' | upper }} {{ '日本語'.find('語') }} {{ 'ß' | upper }}
{{ 'a-b_c d'.title() }} {{ "they're bill's" | title }} {{ "they're".title() }} {{ 'HELLO wORLD'.capitalize() }}
{{ (list | length) > 2 and list[0] == 3 }} {{ list | length > 2 }} {{ not list | length }} {{ 'b' in ['a', 'b'] and true }} {{ 'x' not in text }}
{{ text.split()[1][0] | lower }} {{ ('a', 'b') | join }} {{ ('a', 'b')[1] }} {{ ['a', 'b'] | last }} {{ 'abc' | first }} {{ 'abc' | last }} {{ {'a': 1} | first }}
{{ text | string | length }} {{ 5 | string | length }} {{ 5.0 | string }} {{ true | string }} {{ list | string }} {{ 1 | float }} {{ '1' | int + 1 }} {{ true + 1 }} {{ true | int }}
"""
# Where minijinja differs and no template is known to mind. The test asserts that they differ, so that the list stays true.
DIFFERENT = r"""
{{ '%s-%d' % ('a', 3) }}
{{ +1 }}
{{ text | wordcount }}
{{ text | center(15) }}|
{% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, a=3) }}
{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}
{{ ['\u200b'] }}
{{ 'ǆ'.title() }}
{{ 'x'.encode('utf-8') }}
{{ namespace(_x=1) }}
{{ 'a' < 1 }}
{{ 'a' > none }}
{{ [3, 'a'] | sort }}
{{ people | sum(attribute='x') }}
{% for x in none %}{% endfor %}
"""
BLOCKS = r"""
{% if flag %}
  indented
{% endif %}
after
|||
  {% for i in list %}
    {{ i }}
  {% endfor %}
end
|||
a
  {%- if flag %}
  b
  {%- endif %}
  c
|||
a {%+ if flag %} b {% endif +%}
c
|||
{% set x = 1 %}

{{ x }}

{# a comment on a line #}
last {# inline #}
line

|||
{{ text }}

{% if off %}
no
{% endif %}
	{% if flag %}	tab
	{% endif %}
x{% if flag %}
y
{% endif %}
|||
{%- for message in messages %}
    {{- '<|' + message['role'] + '|>\n' }}
    {%- if message.content is string %}
        {{- message.content | trim + '\n' }}
    {%- else %}
        {%- for part in message.content if part.type == 'text' %}
            {{- part.text }}
        {%- endfor %}
    {%- endif %}
{%- endfor %}
|||
{%- macro render(value, depth=0) -%}
    {%- if value is mapping -%}
        {%- for k, v in value | dictsort -%}
            {{- '  ' * depth ~ k ~ ':\n' -}}{{- render(v, depth + 1) -}}
        {%- endfor -%}
    {%- elif value is sequence and value is not string -%}
        {%- for v in value -%}{{- render(v, depth) -}}{%- endfor -%}
    {%- else -%}
        {{- '  ' * depth ~ value ~ '\n' -}}
    {%- endif -%}
{%- endmacro -%}
{{ render(tools[0]) }}
|||
{% generation %}
  generated {{ text }}
{% endgeneration %}
tail
|||
    {% generation %}x{% endgeneration %}

{%- if add_generation_prompt %}
<|assistant|>
{% endif %}
|||
{% raw %}  kept {{ x }}
{% endraw %}
|||
{% set content %}
  {{ text }}
{% endset %}
[{{ content }}]
|||
{{ 'line one
line two' }}
|||
{%- set ns = namespace(found=false, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.found and message.role == "user" and message.content is string %}
        {%- set ns.found = true %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{{ ns.last }}
|||
{% call(x) m() %}{{ x }}{% endcall %}
{% macro m() %}{{ caller(1) }}{% endmacro %}
"""


def render(template):
    try:
        texts, _ = reference.render_jinja_template(
            [reference._normalize_chat_messages(MESSAGES)], chat_template=template, add_generation_prompt=True, **VARIABLES)
        return texts[0]
    except Exception as e:  # noqa: BLE001 - what the reference refuses is a case too
        return {"error": type(e).__name__}


def main():
    templates = [line for line in CASES.strip("\n").split("\n") if line]
    templates += [block.strip("\n") if i % 2 else block[1:] for i, block in enumerate(BLOCKS.split("|||"))]
    templates += ["{{ text }}\r\n{% if flag %}\r\nx{% endif %}\r\n\r\n", "a\n", "a\n\n", "", "\n", "{% if flag %}\n\nx{% endif %}\n"]
    cases = [{"template": t, "output": render(t)} for t in templates]
    different = [line for line in DIFFERENT.strip("\n").split("\n")] + ["{% raw %}\n  kept {{ x }}\n{% endraw %}\n"]
    cases += [{"template": t, "output": render(t), "differs": True} for t in different]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    body = {"messages": MESSAGES, "variables": VARIABLES, "cases": cases}
    OUT.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n")
    print(len(cases), "cases,", sum(isinstance(c["output"], dict) for c in cases), "errors")


if __name__ == "__main__":
    main()
