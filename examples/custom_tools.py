"""Custom tools, whose input follows a grammar: ``OPENAI_BASE_URL=http://localhost:8000/v1 python …``.

The server needs ``--enable-auto-tool-choice --tool-call-parser NAME``.
"""

from __future__ import annotations

from openai import OpenAI

TODO = r"""
start: item~1..5
item: ("[ ] " | "[x] ") TEXT "\n"
TEXT: /[A-Za-z][A-Za-z ]{0,30}/
"""
QUESTION = "Milk is bought. Bread and eggs are not. Write the list, and say on which day it is."

if __name__ == "__main__":
    client = OpenAI(api_key="-")
    model = client.models.list().data[0].id

    # In the Responses API, each call is a separate item.
    tools = [
        {
            "type": "custom",
            "name": "write_list",
            "description": "Write a list of things to do.",
            "format": {"type": "grammar", "syntax": "lark", "definition": TODO},
        },
        {
            "type": "custom",
            "name": "set_day",
            "format": {"type": "grammar", "syntax": "regex", "definition": r"20[0-9]{2}-[01][0-9]-[0-3][0-9]"},
        },
    ]
    answer = client.responses.create(model=model, input=QUESTION, tools=tools, tool_choice="required")
    for item in answer.output:
        if item.type == "custom_tool_call":
            print(item.name, repr(item.input))

    # The input arrives piece by piece in a stream.
    choice = {"type": "custom", "name": "write_list"}
    with client.responses.stream(model=model, input=QUESTION, tools=tools, tool_choice=choice) as stream:
        for event in stream:
            if event.type == "response.custom_tool_call_input.delta":
                print(event.delta, end="")

    # Chat completions take the same tools in another shape.
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": TODO}}
    chat = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": QUESTION}],
        tools=[{"type": "custom", "custom": {"name": "write_list", "format": grammar}}],
        tool_choice={"type": "custom", "custom": {"name": "write_list"}},
    )
    for call in chat.choices[0].message.tool_calls or ():
        print(call.custom.name, repr(call.custom.input))
