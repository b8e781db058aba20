#!/usr/bin/env python3
"""Compares the chart with the manifests, and its values with their schema and their table. Needs PyYAML.

  check.py same CHART MANIFESTS...   objects that `helm template` prints, and those that `kubectl kustomize` prints
  check.py values [write]            values.yaml, values.schema.json and the table of README.md; write: writes the table
"""

import json
import re
import sys
from pathlib import Path

import yaml

CHART = Path(__file__).parent.parent.parent / "charts/yurt-ds"

# Differences that are allowed.
HELM_LABELS = {"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}
HELM_ANNOTATIONS = {"helm.sh/resource-policy"}
# The chart sets this label on all objects, but only some kustomizations do.
NAME_LABEL = "app.kubernetes.io/name"
# Helm creates the namespace of the release itself.
ONLY_KUSTOMIZE = {("Namespace", None, "yurt-ds")}
# Lists whose items have unique names, so that the order has no meaning.
BY_NAME = {"env", "volumes", "volumeMounts"}


def without_nulls(value, key=None):
    """Returns the value without null, and with sorted lists."""
    if isinstance(value, dict):
        return {name: without_nulls(one, name) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        items = [without_nulls(one) for one in value]
        return sorted(items, key=lambda one: one["name"]) if key in BY_NAME else items
    return value


def objects(paths):
    """Returns the objects of YAML files by kind, namespace and name, except hooks."""
    found = {}
    for path in paths:
        for one in yaml.load_all(Path(path).read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if not one:
                continue
            meta = one["metadata"]
            if "helm.sh/hook" not in (meta.get("annotations") or {}):
                found[one["kind"], meta.get("namespace"), meta["name"]] = without_nulls(one)
    return found


def strip(chart, manifest):
    """Removes the allowed differences from the metadata of two objects."""
    labels = chart["metadata"].get("labels", {})
    for label in HELM_LABELS:
        labels.pop(label, None)
    if NAME_LABEL not in manifest["metadata"].get("labels", {}):
        labels.pop(NAME_LABEL, None)
    annotations = chart["metadata"].get("annotations", {})
    for annotation in HELM_ANNOTATIONS:
        annotations.pop(annotation, None)
    for key in ("labels", "annotations"):
        if not chart["metadata"].get(key):
            chart["metadata"].pop(key, None)


def differences(path, chart, manifest):
    """Yields a line per field that differs."""
    if isinstance(chart, dict) and isinstance(manifest, dict):
        for key in sorted({*chart, *manifest}, key=str):
            yield from differences(f"{path}.{key}", chart.get(key), manifest.get(key))
    elif isinstance(chart, list) and isinstance(manifest, list) and len(chart) == len(manifest):
        for index, pair in enumerate(zip(chart, manifest)):
            yield from differences(f"{path}[{index}]", *pair)
    elif chart != manifest or type(chart) is not type(manifest):
        yield f"{path}: {chart!r} in the chart, {manifest!r} in the manifests"


def same(chart_path, *manifest_paths):
    """Returns the differences between the chart and the manifests."""
    chart, manifests = objects([chart_path]), objects(manifest_paths)
    found = []
    for key in sorted({*chart, *manifests} - ONLY_KUSTOMIZE, key=str):
        name = "/".join(part for part in key if part)
        if key not in chart or key not in manifests:
            found.append(f"{name}: only in the {'chart' if key in chart else 'manifests'}")
            continue
        strip(chart[key], manifests[key])
        found += differences(name, chart[key], manifests[key])
    return found


def commented():
    """Returns the values of values.yaml that have a comment: path, comment and default."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    path, comment, rows = [], [], []
    for line in (CHART / "values.yaml").read_text().splitlines():
        key = re.match(r"( *)([\w./-]+):", line)
        if line.strip().startswith("# "):
            comment.append(line.strip()[2:])
        elif key and len(key[1]) // 2 <= len(path):
            path = path[: len(key[1]) // 2] + [key[2]]
            if comment:
                default = defaults
                for part in path:
                    default = default[part]
                rows.append((".".join(path), " ".join(comment), default))
            comment = []
    return rows


def table(rows):
    """Yields the lines of the table in README.md."""
    yield "| value | default | meaning |"
    yield "| --- | --- | --- |"
    for path, comment, default in rows:
        default = json.dumps(default)
        yield f"| `{path}` | `{default if len(default) <= 40 else '…'}` | {comment} |"


def declared(part, definitions, path=""):
    """Yields the paths of the values that a part of the schema declares, without the fields of Kubernetes."""
    for name, one in part["properties"].items():
        one = definitions.get(one.get("$ref", "").rpartition("/")[2], one)
        if "properties" in one:
            yield from declared(one, definitions, f"{path}{name}.")
        else:
            yield path + name


def values(mode=None):
    """Returns the differences between values.yaml, the schema and the table."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    rows = commented()
    readme = CHART / "README.md"
    head, _, _ = readme.read_text().partition("| value |")
    text = head + "\n".join(table(rows)) + "\n"
    if mode == "write":
        readme.write_text(text)
    found = [] if text == readme.read_text() else ["README.md: the table is old; run tests/chart/check.py values write"]
    # "enabled" is set only by a parent chart.
    known, described = {*declared(schema, schema["definitions"])} - {"enabled"}, {row[0] for row in rows}
    found += [f"{path}: not described in values.yaml" for path in sorted(known - described)]
    found += [f"{path}: not in values.schema.json" for path in sorted(described - known)]
    return found


FAULTS = {"same": same, "values": values}[sys.argv[1]](*sys.argv[2:])
for fault in FAULTS:
    print(fault)
sys.exit(bool(FAULTS))
