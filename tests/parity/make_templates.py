#!/usr/bin/env python3
"""Writes golden/templates.json: what `transformers` renders for chat templates written here in the manner of those of
language models, and for expressions one by one.

    pip install transformers jinja2
    tests/parity/make_templates.py
"""
import json
import pathlib

from transformers.utils.chat_template_utils import _cached_compile_jinja_template

CHATML = """{% for message in messages %}
{% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}
{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA2 = """{%- if messages[0]['role'] == 'system' -%}
    {%- set loop_messages = messages[1:] -%}
    {%- set system_message = messages[0]['content'] -%}
{%- else -%}
    {%- set loop_messages = messages -%}
    {%- set system_message = false -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('roles must alternate') -}}
    {%- endif -%}
    {%- if loop.index0 == 0 and system_message != false -%}
        {%- set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] -%}
    {%- else -%}
        {%- set content = message['content'] -%}
    {%- endif -%}
    {%- if message['role'] == 'user' -%}
        {{- bos_token + '[INST] ' + content.strip() + ' [/INST]' -}}
    {%- elif message['role'] == 'assistant' -%}
        {{- ' ' ~ content.strip() ~ ' ' ~ eos_token -}}
    {%- endif -%}
{%- endfor -%}
"""

LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined and false %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

QWEN3 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""

GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""

MISTRAL = """{%- set user_messages = messages | selectattr("role", "equalto", "user") | list %}
{%- set system_messages = messages | selectattr("role", "eq", "system") | map(attribute="content") | list %}
{{- bos_token }}
{%- for message in messages | rejectattr("role", "equalto", "system") %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_messages %}
            {{- "[INST] " + system_messages|join("\\n\\n") + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {%- set content = message.content.content if message.content.content is defined else message.content %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id|default('none') + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""

PHI = """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}"""

GRANITE = """{%- set tools_system = 'You have tools.' %}
{%- macro document_text(document, level=1) -%}
    {{- '#' * level ~ ' ' ~ document.title | title }}
    {%- for part in document.parts | default([]) %}
        {{- '\\n' }}{{ document_text(part, level=level + 1) }}
    {%- endfor %}
{%- endmacro %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message %}
Knowledge Cutoff: April.
{%- if tools %} {{ tools_system }}{% endif %}
    {%- endset %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message | trim + '<|end_of_text|>\\n' }}
{%- if docs %}{{ document_text(docs) }}{% endif %}
{%- for message in loop_messages %}
    {%- if message['role'] in ['user', 'assistant'] %}
        {%- generation %}
        {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + (message['content'] or '') + '<|end_of_text|>\\n' }}
        {%- endgeneration %}
    {%- else %}
        {%- continue %}
    {%- endif %}
    {%- if loop.index > 3 %}{% break %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}
"""

DEEPSEEK = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}"""

TEMPLATES = {"chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3, "qwen3": QWEN3, "gemma": GEMMA, "mistral": MISTRAL,
             "phi": PHI, "granite": GRANITE, "deepseek": DEEPSEEK}

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a \"city\" <now> & later",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer",
                   "minimum": 1, "maximum": 14.5}}, "required": ["city"]}, "return": {"type": "number"}}}]

CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abc123xyz", "type": "function",
     "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 3, "exact": True, "unit": None}}}]}

CONVERSATIONS = [
    {"messages": [{"role": "user", "content": "  Hello, who are you? \n"}]},
    {"messages": [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": "1 + 1?"},
                  {"role": "assistant", "content": "<think>\nadd\n</think>\n\n2"},
                  {"role": "user", "content": "And 你好 🙂 'quoted' \"double\" \\ back?"}]},
    {"messages": [{"role": "user", "content": "Weather?"}, CALL,
                  {"role": "tool", "tool_call_id": "abc123xyz", "content": "sunny"}], "tools": TOOLS},
    {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "enable_thinking": False},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": " see "}, {"type": "image"}]}]},
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a1"},
                  {"role": "user", "content": "r"}, {"role": "assistant", "content": "a2"},
                  {"role": "user", "content": "s"}],
     "docs": {"title": "the big one", "parts": [{"title": "x-y", "parts": [{"title": "it's"}]}, {"title": "z"}]}},
]

# Each is rendered with the variables below.
EXPRESSIONS = """
{{ 1 + 2 * 3 - 4 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ 7 % 3 }}|{{ -7 % 3 }}|{{ 7 / 2 }}|{{ 2 ** 10 }}|{{ 1e3 }}|{{ 6 / 3 }}
{{ 0.1 + 0.2 }}|{{ 1e16 }}|{{ 123456789.125 }}|{{ 1e-5 }}|{{ 100.0 }}|{{ 5e-324 }}|{{ -0.0 }}
{{ true }}|{{ none }}|{{ [1, 'a', "it's", none, true, 1.5] }}|{{ {'a': [1], 2: {}} }}|{{ [] }}
{{ 'a' ~ 1 ~ none ~ true ~ [1] }}|{{ 'ab' * 3 }}|{{ [1] * 2 + [3] }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 'a' < 'b' }}|{{ 1 == 1.0 }}|{{ true == 1 }}|{{ [1, 2] < [1, 3] }}|{{ 'a' == 1 }}
{{ 'b' in 'abc' }}|{{ 2 in [1, 2] }}|{{ 'k' in map }}|{{ 'z' not in map }}|{{ 1 not in list }}|{{ 1 in missing }}
{{ 'yes' if list else 'no' }}|{{ 'x' if missing }}|{{ missing or 'other' }}|{{ list and 0 }}|{{ not list }}
{{ text[0] }}|{{ text[-1] }}|{{ text[1:4] }}|{{ text[::-1] }}|{{ text[:-2] }}|{{ text[100:] }}|{{ text[5:2] }}|{{ list[9] }}
{{ list[0] }}|{{ list[1:] }}|{{ list[::2] }}|{{ list[-2:] }}|{{ list[::-1] }}|{{ list[-100:100] }}|{{ map['k'] }}|{{ map.k }}
{{ 'text'.upper() }}|{{ '  a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'a,b,,c'.split(',') }}
{{ ' a  b c '.split() }}|{{ 'a b c'.split(' ', 1) }}|{{ 'a b c'.rsplit(' ', 1) }}|{{ ' a b  c '.split(none, 1) }}
{{ 'a\\nb\\r\\nc'.splitlines() }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'aXbX'.replace('X', '--') }}
{{ 'abc'.replace('', '.') }}|{{ 'aaa'.replace('a', 'b', 2) }}|{{ 'hello world'.title() }}|{{ 'hELLO'.capitalize() }}
{{ 'abcabc'.find('c') }}|{{ 'abcabc'.rfind('c') }}|{{ 'x'.find('y') }}|{{ 'abab'.count('ab') }}|{{ ', '.join(['a', 'b']) }}
{{ '12'.isdigit() }}|{{ 'prefix'.removeprefix('pre') }}|{{ '{} and {}'.format(1, 'b') }}|{{ '{0}{0}{x}'.format('a', x=2) }}
{{ map.get('k') }}|{{ map.get('z') }}|{{ map.get('z', 5) }}|{{ map.keys()|list }}|{{ map.values()|list }}|{{ map.items()|map('last')|list }}
{{ [3, 1, 2]|sort }}|{{ ['b', 'A', 'c']|sort }}|{{ ['b', 'A']|sort(case_sensitive=true) }}|{{ [1, 2]|sort(reverse=true) }}
{{ rows|sort(attribute='n')|map(attribute='name')|join('-') }}|{{ rows|map(attribute='n')|sum }}|{{ rows|sum(attribute='n') }}
{{ rows|selectattr('n', 'gt', 1)|map(attribute='name')|list }}|{{ rows|selectattr('on')|list|length }}|{{ rows|rejectattr('on', 'true')|list|length }}
{{ [1, 2, 3, 4]|select('even')|list }}|{{ [0, 1, '', 'a']|select|list }}|{{ ['a', 'B']|map('upper')|join }}|{{ [1, none]|reject('none')|list }}
{{ 'abc'|length }}|{{ 'ü🙂'|length }}|{{ list|first }}|{{ list|last }}|{{ []|first }}|{{ 'abc'|reverse }}|{{ [1, 2]|reverse|list }}
{{ missing|default('d') }}|{{ ''|default('d') }}|{{ ''|default('d', true) }}|{{ none|default('d') }}|{{ missing|d(3) }}
{{ '42'|int }}|{{ 'x'|int }}|{{ 'x'|int(7) }}|{{ '3.7'|int }}|{{ '2.5'|float }}|{{ 3|string ~ 4 }}|{{ -3|abs }}|{{ 2.567|round(1) }}|{{ 2.5|round }}
{{ map|tojson }}|{{ 'a"b\\\\c\\n<é>'|tojson }}|{{ [1, 2.0, none, true]|tojson }}|{{ {}|tojson }}|{{ []|tojson(indent=2) }}
{{ rows|tojson(indent=2) }}
{{ {'b': 1, 'a': [1, {'x': 2}]}|tojson(sort_keys=true) }}|{{ {'b': 1}|tojson(separators=(',', ':')) }}
{{ {'b': 1, 'A': 2}|dictsort|map('first')|list }}|{{ {'b': 1, 'a': 2}|dictsort(by='value')|map('last')|join }}|{{ map|items|map('first')|list }}|{{ ['a', 'A', 'b']|unique|list }}
{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ ' x '|trim }}|{{ 'xax'|trim('x') }}|{{ 'hello big-world'|title }}
{{ [1, 3, 2]|max }}|{{ [1, 3, 2]|min }}|{{ ['a', 'b']|join(', ') }}|{{ 'abc'|list }}|{{ 'a<b'|escape }}|{{ 'aXb'|replace('X', 'Y') }}
{{ missing is defined }}|{{ list is defined }}|{{ none is none }}|{{ 'a' is string }}|{{ 1 is number }}|{{ true is boolean }}|{{ map is mapping }}
{{ list is iterable }}|{{ map is sequence }}|{{ 1 is integer }}|{{ 1.5 is float }}|{{ 3 is odd }}|{{ 4 is even }}|{{ 9 is divisibleby 3 }}
{{ 1 is eq 1 }}|{{ 1 is ne(2) }}|{{ 'a' is in ['a'] }}|{{ 1 is not none }}|{{ range is callable }}|{{ not missing is defined }}|{{ true is true }}
{{ range(3)|list }}|{{ range(1, 4)|list }}|{{ range(5, 0, -2)|list }}|{{ dict(a=1, b='x') }}|{{ (1, 2)|first }}
{% for x in list %}{{ loop.index }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}:{{ x }};{% endfor %}
{% for k, v in map.items() %}{{ k }}={{ v }} {% else %}none{% endfor %}|{% for x in [] %}{% else %}empty{% endfor %}|{% for x in missing %}x{% endfor %}
{% for x in [1, 2, 3, 4, 5] if x is odd %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}|{% for x in 'ab' %}{{ x }}.{% endfor %}
{% for x in [1, 2, 3] %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') }} {% endfor %}
{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}|{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(n=0, s='') %}{% for i in [1, 2, 3] %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}
{% macro f(a, b=2, c='z') %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f() }}|{{ f('x')|upper }}
{% macro tree(n) %}{{ n }}{% if n > 0 %}({{ tree(n - 1) }}){% endif %}{% endmacro %}{{ tree(3) }}
{% set block %} a {{ 1 + 1 }} {% endset %}[{{ block }}]|{% set up | upper | trim %} abc {% endset %}[{{ up }}]|{% filter upper %}abc{% endfilter %}
{% with a=1, b=2 %}{{ a + b }}{% endwith %}{{ a is defined }}|{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% for a, b in [(1, 2), [3, 4]] %}{{ a * b }} {% endfor %}
{% raw %}{{ not }} {% this %}{% endraw %}|{# comment #}x{#- y -#} z|{{ '{{' }}|{{ {'a': {'b': 1}}.a.b }}|{{ {'a': {'b': 1}} }}
a  {%- if true %}  b  {%- endif %}  c|{{- 'd' -}}  e|  {%+ if true %} f {% endif %}|{{ 'g' }}
{{ 'unicode \\u00e9 \\x41 \\t.' }}|{{ "a" "b" 'c' }}|{{ 'it\\'s' }}|{{ "tab\\tq" | tojson }}|{{ '\\q' }}
{{ map.items is defined }}|{{ none.x is defined }}|{{ text.nothing is defined }}|{{ 5 .x is defined }}|{{ map['z'] is undefined }}
{{ 'a' if false else 'b' if false else 'c' }}|{{ 1 if true else 2 ~ 'x' }}|{{ (1 or 2) and 3 }}|{{ not 1 == 2 }}|{{ -2 ** 2 }}|{{ 2 ** 3 ** 2 }}
{{ 1 ~ 2 }}|{{ '5' ~ 2 * 3 }}|{{ [1, 2, 3][1] }}|{{ 'abc'[1] }}|{{ {'a': 1}['a'] }}|{{ (list)[0] }}|{{ list[0]|string|length }}
""".strip("\n").split("\n")

# Templates that must be rejected.
REFUSED = ["{{ missing.x }}", "{{ missing() }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 < 'a' }}", "{{ none|items|list }}",
           "{{ 1 / 0 }}", "{{ raise_exception('no') }}", "{% for x in none %}{% endfor %}", "{{ list.append(1) }}",
           "{{ missing + 1 }}", "{{ map.update({'a': 1}) }}", "{{ x", "{% if %}{% endif %}", "{% for x in list %}",
           "{{ 1 | nothing }}", "{{ 1 is nothing }}", "{% endfor %}", "{{ 'a }}", "{{ (1 }}", "{{ ''.__class__.x }}",
           "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{{ range(100001) }}", "{{ 1 2 }}"]

VARIABLES = {"text": "häß🙂text", "list": [10, 20, 30, 40, 50], "map": {"k": "v", "n": 1, "deep": {"x": [1, 2]}},
             "rows": [{"name": "b", "n": 2, "on": True}, {"name": "a", "n": 1, "on": False},
                      {"name": "c", "n": 3, "on": True}]}


def render(template, variables):
    try:
        return _cached_compile_jinja_template(template).render(**variables)
    except Exception:  # any kind of rejection
        return None


def main():
    rendered = []
    for name, template in TEMPLATES.items():
        for number, conversation in enumerate(CONVERSATIONS):
            for answer in (True, False):
                variables = {"tools": None, "documents": None, **conversation, "add_generation_prompt": answer,
                             "bos_token": "<s>", "eos_token": "</s>"}
                rendered.append({"template": name, "conversation": number, "answer": answer,
                                 "text": render(template, variables)})
    expressions = [{"template": line, "text": render(line, VARIABLES)} for line in EXPRESSIONS]
    for row in expressions:
        if row["text"] is None:
            raise SystemExit("not rendered: " + row["template"])
    for template in REFUSED:
        if render(template, VARIABLES) is not None:
            raise SystemExit("rendered: " + template)
    golden = {"templates": TEMPLATES, "conversations": CONVERSATIONS, "rendered": rendered, "variables": VARIABLES,
              "expressions": expressions, "refused": REFUSED}
    path = pathlib.Path(__file__).parent / "golden" / "templates.json"
    path.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")
    print(sum(row["text"] is not None for row in rendered), "of", len(rendered), "conversations,", len(expressions), "lines")


if __name__ == "__main__":
    main()
