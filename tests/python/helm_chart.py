"""Checks the chart of examples/serve/helm without helm: renders the few constructs of templates that it uses, parses what comes out as YAML,
and compares the rights in it with those of the DaemonSet next to it.

Usage: helm_chart.py CHART KUBERNETES_YAML. Prints the kinds of the objects.
"""

import os
import re
import sys

import yaml

CHART, PLAIN = sys.argv[1:]
TAG = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.S)


def value(words, scope):
    """The value of a path such as .Values.image.tag, a text, or a dot."""
    word = words.strip()
    if word.startswith('"'):
        return word.strip('"')
    at = scope["."] if word == "." else scope
    for part in [part for part in word.split(".") if part]:
        at = at[part]
    return at


def evaluate(expression, scope):
    """The text of an expression, with the functions that the chart uses."""
    first, *pipes = [part.strip() for part in expression.split("|")]
    name, _, rest = first.partition(" ")
    if name == "include":
        found = HELPERS[rest.split('"')[1]]
    elif name == "toYaml":
        found = yaml.safe_dump(value(rest, scope), sort_keys=False).rstrip()
    else:
        found = value(first, scope)
    for pipe in pipes:
        name, _, argument = pipe.partition(" ")
        if name == "default":
            found = found or value(argument, scope)
        elif name == "quote":
            found = f'"{found}"'
        elif name == "nindent":
            space = " " * int(argument)
            found = "\n" + "\n".join(space + line for line in str(found).splitlines())
        else:
            raise SystemExit(f"this check does not know {name}")
    return str(found)


def render(text, scope):
    """Renders a template."""
    # What a dash says: no space on that side.
    text = re.sub(r"\s*\{\{-", "{{", text)
    tokens, at = [], 0
    for found in TAG.finditer(text):
        tokens += [("text", text[at:found.start()]), ("tag", found.group(1))]
        at = found.end()
    tokens.append(("text", text[at:]))

    def block(position, scope, shown):
        out = ""
        while position < len(tokens):
            kind, token = tokens[position]
            position += 1
            word, _, rest = token.partition(" ")
            if kind == "text":
                out += token
            elif word == "end":
                return out, position
            elif word in ("if", "with", "range"):
                of = value(rest, scope) if shown else None
                items = [scope] if word == "if" else [{**scope, ".": of}]
                if word == "range":
                    items = [{**scope, ".": item} for item in of or []]
                parts = [block(position, item, True) for item in items] if of else []
                after = block(position, scope, False)[1]
                out += "".join(part for part, _ in parts)
                position = after
            elif shown:
                out += evaluate(token, scope)
        return out, position

    return block(0, scope, True)[0]


def read(*parts):
    with open(os.path.join(CHART, *parts)) as file:
        return file.read()


CHART_YAML = yaml.safe_load(read("Chart.yaml"))
VALUES = yaml.safe_load(read("values.yaml"))
SCOPE = {"Values": VALUES, "Release": {"Name": "gpu"}, "Chart": {"AppVersion": CHART_YAML["appVersion"]}}
HELPERS = {}
for name, body in re.findall(r'\{\{- define "(.*?)" -\}\}\n(.*?)\n\{\{- end \}\}', read("templates", "_helpers.tpl"), re.S):
    HELPERS[name] = render(body, SCOPE)


def objects(**changed):
    scope = {**SCOPE, "Values": {**VALUES, **changed}}
    names = sorted(name for name in os.listdir(os.path.join(CHART, "templates")) if name.endswith(".yaml"))
    texts = [render(read("templates", name), scope) for name in names]
    for text in texts:
        assert "{{" not in text and "}}" not in text, text
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


assert CHART_YAML["apiVersion"] == "v2" and CHART_YAML["type"] == "application", CHART_YAML
usual = {found["kind"]: found for found in objects()}
everything = {found["kind"]: found for found in objects(
    onlyCgroups=["/kubepods.slice", "/x"], otlp={"url": "http://collector:4318", "every": "30s"}, always="", tolerations=[{"operator": "Exists"}],
    networkPolicy={"enabled": True, "fromNamespaces": ["monitoring", "other"]})}
with open(PLAIN) as file:
    plain = yaml.safe_load(file)

ours, theirs = (found["spec"]["template"]["spec"] for found in (usual["DaemonSet"], plain))
for key in ("hostPID", "automountServiceAccountToken", "enableServiceLinks"):
    assert ours[key] == theirs[key], key
one, other = ours["containers"][0], theirs["containers"][0]
for key in ("securityContext", "args", "volumeMounts", "resources"):
    assert one[key] == other[key], (key, one[key], other[key])
assert one["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_READ_SEARCH"]}
assert "hostNetwork" not in ours and "privileged" not in one["securityContext"]
# No role: nothing here may ask the API server for anything.
assert set(usual) == {"DaemonSet", "ServiceAccount"} and usual["ServiceAccount"]["automountServiceAccountToken"] is False
selector = usual["DaemonSet"]["spec"]["selector"]["matchLabels"]
assert selector == usual["DaemonSet"]["spec"]["template"]["metadata"]["labels"], selector
args = everything["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]["args"]
assert args[2:] == ["--only-cgroup=/kubepods.slice", "--only-cgroup=/x", "--otlp=http://collector:4318", "--otlp-every=30s"], args
policy = everything["NetworkPolicy"]["spec"]
assert policy["podSelector"]["matchLabels"] == selector and len(policy["ingress"][0]["from"]) == 2, policy
print(" ".join(sorted(everything)))
