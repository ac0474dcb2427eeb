{{- define "midair-serve.labels" -}}
app.kubernetes.io/name: midair-serve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
