{{/* Value of the label app.kubernetes.io/name. */}}
{{- define "yurt-ds.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Start of all names: "yurt-ds" if the release is named so. */}}
{{- define "yurt-ds.fullname" -}}
{{- $name := include "yurt-ds.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels of an object that belong to Helm and to the user. */}}
{{- define "yurt-ds.labels" -}}
{{- $own := dict "app.kubernetes.io/name" (include "yurt-ds.name" .) "app.kubernetes.io/instance" .Release.Name }}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- toYaml (merge $own .Values.commonLabels) }}
{{- end }}

{{/* Labels of pods. A label with a version would restart them with each upgrade of the chart. (list ROOT COMPONENT LABELS) */}}
{{- define "yurt-ds.podLabels" -}}
{{- $root := index . 0 }}
{{- $own := dict "app.kubernetes.io/name" (include "yurt-ds.name" $root) "app.kubernetes.io/component" (index . 1) }}
{{- toYaml (merge $own (index . 2) $root.Values.commonLabels) }}
{{- end }}

{{- define "yurt-ds.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository $tag }}
{{- end }}
{{- end }}

{{- define "yurt-ds.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (printf "%s-controller" (include "yurt-ds.fullname" .)) }}
{{- end }}

{{- define "yurt-ds.agentServiceAccountName" -}}
{{ .Values.agent.serviceAccount.name | default (printf "%s-ota-server" (include "yurt-ds.fullname" .)) }}
{{- end }}

{{- define "yurt-ds.hasPolicies" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{/* Address of the API server as variables, if Services don't work where the pods run. */}}
{{- define "yurt-ds.apiServer" -}}
{{- with .Values.apiServer }}
{{- if .host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .port | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Objects of a file in manifests/, with the names, namespaces, labels and accounts of this release. So the chart and kustomize grant the
same rights. (dict "root" ROOT "file" FILE "annotations" ANNOTATIONS)
*/}}
{{- define "yurt-ds.manifest" -}}
{{- $root := .root }}
{{- $annotations := .annotations }}
{{- $fullname := include "yurt-ds.fullname" $root }}
{{- $controller := dict "kind" "ServiceAccount" "name" (include "yurt-ds.serviceAccountName" $root) "namespace" $root.Release.Namespace }}
{{- $agent := dict "kind" "ServiceAccount" "name" (include "yurt-ds.agentServiceAccountName" $root) "namespace" $root.Values.agent.namespace }}
{{- $text := $root.Files.Get (printf "manifests/%s" .file) }}
{{- if not $text }}
{{- fail (printf "manifests/%s is missing: use a packaged chart, or a checkout with symbolic links" .file) }}
{{- end }}
{{- $text = replace "system:serviceaccount:yurt-ds:yurt-ds-controller" (printf "system:serviceaccount:%s:%s" $controller.namespace $controller.name) $text }}
{{- $text = replace "system:serviceaccount:yurt-ds-edge:yurt-ds-ota-server" (printf "system:serviceaccount:%s:%s" $agent.namespace $agent.name) $text }}
{{- range $document := regexSplit "(?m)^---$" $text -1 }}
{{- $object := fromYaml $document }}
{{- $meta := $object.metadata }}
{{- range tuple (list $meta "name") (list ($object.roleRef | default dict) "name") (list ($object.spec | default dict) "policyName") }}
{{- $holder := index . 0 }}
{{- $key := index . 1 }}
{{- $name := get $holder $key | toString }}
{{- if hasPrefix "yurt-ds-" $name }}
{{- $_ := set $holder $key (printf "%s-%s" $fullname (trimPrefix "yurt-ds-" $name)) }}
{{- end }}
{{- end }}
{{- if eq (get $meta "namespace") "yurt-ds" }}
{{- $_ := set $meta "namespace" $root.Release.Namespace }}
{{- end }}
{{- if $object.subjects }}
{{- $subject := index $object.subjects 0 }}
{{- $_ := set $object "subjects" (list (ternary $controller $agent (eq $subject.name "yurt-ds-controller"))) }}
{{- end }}
{{- $labels := include "yurt-ds.labels" $root | fromYaml }}
{{- if and $root.Values.rbac.aggregate (regexMatch "-(viewer|operator)(-advanced)?$" $meta.name) }}
{{- $_ := set $labels (printf "rbac.authorization.k8s.io/aggregate-to-%s" (ternary "view" "edit" (contains "-viewer" $meta.name))) "true" }}
{{- end }}
{{- $_ := set $meta "labels" $labels }}
{{- with $annotations }}
{{- $_ := set $meta "annotations" . }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
