{{/* Labels of every object. Call with (dict "root" $ "component" "operator"). */}}
{{- define "closeknit.labels" -}}
{{ include "closeknit.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: closeknit
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Labels that tell one component's Pods; they never change. */}}
{{- define "closeknit.selector" -}}
app.kubernetes.io/name: closeknit
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Image of a component. Call with (dict "root" $ "image" .Values.operator.image). */}}
{{- define "closeknit.image" -}}
{{- with .root.Values.image.registry }}{{ . }}/{{ end -}}
{{ .image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* User name of the agents in every request they make. */}}
{{- define "closeknit.agent.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:closeknit-agent
{{- end }}

{{/* User name of the operator in every request it makes. */}}
{{- define "closeknit.operator.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:closeknit-operator
{{- end }}

{{/* Where, and how urgently, a component's Pods run. Call with the component's values. */}}
{{- define "closeknit.scheduling" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What Pod Security calls restricted, for a Pod and for its container. */}}
{{- define "closeknit.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "closeknit.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
