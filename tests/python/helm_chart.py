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
    """The value of a path such as .Values.image.tag, a text, a dot, or the first of some that is not empty."""
    word = words.strip()
    if word.startswith("or "):
        return next(filter(None, (value(one, scope) for one in word.split()[1:])), None)
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

    def block(position, scope, shown, otherwise=False):
        """Renders up to an end: what is there is shown or not, and so is what follows an else."""
        out = ""
        while position < len(tokens):
            kind, token = tokens[position]
            position += 1
            word, _, rest = token.partition(" ")
            if kind == "text":
                out += token if shown else ""
            elif word == "end":
                return out, position
            elif word == "else":
                rest, position = block(position, scope, otherwise)
                return out + rest, position
            elif word in ("if", "with", "range"):
                of = value(rest, scope) if shown else None
                items = [scope] if word == "if" else [{**scope, ".": of}]
                if word == "range":
                    items = [{**scope, ".": item} for item in of or []]
                parts = [block(position, item, True) for item in items] if of else []
                other, position = block(position, scope, False, shown and not of)
                out += "".join(part for part, _ in parts) + other
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
usual = {found["kind"]: found for found in objects(tls={"secret": "midair-tls", "clientCA": ""})}
everything = {found["kind"]: found for found in objects(
    onlyCgroups=["/kubepods.slice", "/x"], always="", tolerations=[{"operator": "Exists"}],
    otlp={"url": "https://collector:4318", "every": "30s", "ca": "collectors", "tokenSecret": "collector-token"},
    tls={"secret": "midair-tls", "clientCA": "scrapers"},
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
pod = everything["DaemonSet"]["spec"]["template"]["spec"]
args = pod["containers"][0]["args"]
assert args[4:] == [
    "--tls-client-ca=/run/midair-client-ca/ca.crt", "--only-cgroup=/kubepods.slice", "--only-cgroup=/x", "--otlp=https://collector:4318",
    "--otlp-every=30s", "--otlp-ca=/run/midair-otlp-ca/ca.crt", "--otlp-token-file=/run/midair-otlp-token/token"], args
# Each file is in a volume that is mounted, and no one else reads a secret.
mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
volumes = {volume.pop("name"): volume for volume in pod["volumes"]}
sources = {arg.split("=")[0]: volumes[mounts[os.path.dirname(arg.split("=")[1])]] for arg in args if "=/run/" in arg}


def secret(name):
    return {"secret": {"secretName": name, "defaultMode": 0o400}}


assert sources == {
    "--token-file": secret("midair-token"), "--tls-cert": secret("midair-tls"), "--tls-key": secret("midair-tls"),
    "--otlp-token-file": secret("collector-token"), "--tls-client-ca": {"configMap": {"name": "scrapers"}},
    "--otlp-ca": {"configMap": {"name": "collectors"}}}, sources
assert set(mounts.values()) == set(volumes), (mounts, volumes)
# Other machines are listened to with TLS, or where someone says that it need not be.
for changed, address, scheme in [({}, "127.0.0.1", None), ({"insecure": True}, "0.0.0.0", None),
                                 ({"tls": {"secret": "x", "clientCA": ""}}, "0.0.0.0", "https")]:
    template = objects(**changed)[0]["spec"]["template"]
    args = template["spec"]["containers"][0]["args"]
    assert args[0] == f"--listen={address}:9468" and ("--tls-key=/run/midair-tls/tls.key" in args) == bool(scheme), args
    annotations = template["metadata"].get("annotations", {})
    assert annotations.get("prometheus.io/scheme") == scheme and bool(annotations) == (address != "127.0.0.1"), annotations
policy = everything["NetworkPolicy"]["spec"]
assert policy["podSelector"]["matchLabels"] == selector and len(policy["ingress"][0]["from"]) == 2, policy
# An empty list lets no one in: without `from` a rule would let everyone in.
closed = [found for found in objects(networkPolicy={"enabled": True, "fromNamespaces": []}) if found["kind"] == "NetworkPolicy"]
assert closed[0]["spec"]["ingress"] == [] and closed[0]["spec"]["policyTypes"] == ["Ingress"], closed
print(" ".join(sorted(everything)))
