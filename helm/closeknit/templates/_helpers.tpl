{{/* Labels of every object. Call with (dict "root" $ "component" "operator"); "more" are others, of Pods. */}}
{{- define "closeknit.labels" -}}
{{- $own := include "closeknit.labels.own" . | fromYaml }}
{{- toYaml (merge $own (deepCopy (.more | default dict)) (deepCopy (.root.Values.commonLabels | default dict))) }}
{{- end }}

{{- define "closeknit.labels.own" -}}
{{ include "closeknit.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: closeknit
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* Labels that tell one component's Pods; they never change. */}}
{{- define "closeknit.selector" -}}
app.kubernetes.io/name: closeknit
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Image of a component. Call with (dict "root" $ "image" .Values.operator.image). */}}
{{- define "closeknit.image" -}}
{{- $values := .root.Values }}
{{- with ($values.global | default dict).imageRegistry | default $values.image.registry }}
{{- if not (include "closeknit.ownRegistry" $.image.repository) }}{{ . }}/{{ end }}
{{- end }}
{{- .image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}
{{- with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Not empty where a repository begins with a registry, by the rule of every container runtime. */}}
{{- define "closeknit.ownRegistry" -}}
{{- $parts := splitList "/" . }}
{{- $first := first $parts }}
{{- if and (gt (len $parts) 1) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) }}true{{ end }}
{{- end }}

{{/* Pull secrets of a Pod, each as {name}. */}}
{{- define "closeknit.pullSecrets" -}}
{{- $names := list }}
{{- range concat (.Values.imagePullSecrets | default list) ((.Values.global | default dict).imagePullSecrets | default list) }}
{{- if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- with uniq $names }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Names of the ServiceAccounts. */}}
{{- define "closeknit.agent.account" -}}
{{ .Values.agent.serviceAccount.name | default "closeknit-agent" }}
{{- end }}
{{- define "closeknit.operator.account" -}}
{{ .Values.operator.serviceAccount.name | default "closeknit-operator" }}
{{- end }}

{{/* User name of the agents in every request they make. */}}
{{- define "closeknit.agent.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "closeknit.agent.account" . }}
{{- end }}

{{/* User name of the operator in every request it makes. */}}
{{- define "closeknit.operator.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "closeknit.operator.account" . }}
{{- end }}

{{/* A component's ServiceAccount, if the chart makes it. Call with (dict "root" $ "component" "operator"). */}}
{{- define "closeknit.serviceAccount" -}}
{{- $account := (get .root.Values .component).serviceAccount }}
{{- if $account.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include (printf "closeknit.%s.account" .component) .root | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "closeknit.labels" . | nindent 4 }}
  {{- with $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
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

{{/* What Pod Security calls restricted, for a Pod. OpenShift chooses user and group of a Pod from its namespace's range,
     and refuses others. Call with (dict "root" $ "context" .Values.operator.podSecurityContext). */}}
{{- define "closeknit.podSecurity" -}}
{{- $context := dict }}
{{- $free := .root.Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- range $name, $value := .context }}
{{- $fixed := and (has $name (list "runAsUser" "runAsGroup")) (eq (toString $value) "1000") }}
{{- if not (or (kindIs "invalid" $value) (and $free $fixed)) }}{{ $_ := set $context $name $value }}{{ end }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* Not empty where something is wanted: always, or where the cluster knows its kind. Call with (dict "root" $ "enabled" "api"). */}}
{{- define "closeknit.known" -}}
{{- if eq (toString .enabled) "auto" }}
{{- if .root.Capabilities.APIVersions.Has .api }}true{{ end }}
{{- else if .enabled }}true{{ end }}
{{- end }}

{{/* How agents reach the GPUs: RuntimeClass or Claim. Auto looks at the cluster, where there is one to look at. */}}
{{- define "closeknit.access" -}}
{{- $agent := .Values.agent }}
{{- if ne $agent.access "Auto" }}{{ $agent.access }}
{{- else if not $agent.runtimeClassName }}RuntimeClass
{{- else if not (lookup "v1" "Namespace" "" "kube-system") }}RuntimeClass
{{- else if lookup "node.k8s.io/v1" "RuntimeClass" "" $agent.runtimeClassName }}RuntimeClass
{{- else if and (include "closeknit.adminAccess" .) (lookup "resource.k8s.io/v1" "DeviceClass" "" "gpu.nvidia.com") }}Claim
{{- else }}RuntimeClass
{{- end }}
{{- end }}

{{/* Not empty where the release namespace is labelled for claims that look at all devices. */}}
{{- define "closeknit.adminAccess" -}}
{{- $namespace := lookup "v1" "Namespace" "" .Release.Namespace }}
{{- with ($namespace.metadata | default dict).labels }}
{{- if eq (get . "resource.kubernetes.io/admin-access" | default "") "true" }}true{{ end }}
{{- end }}
{{- end }}

{{/* Not empty where the values' ClusterTopology is rendered. */}}
{{- define "closeknit.topology" -}}
{{- if or .Values.clusterTopology.levels .Values.clusterTopology.fabric }}
{{- if or (not .Values.crds.install) (.Capabilities.APIVersions.Has "closeknit.dev/v1alpha1/ClusterTopology") }}true{{ end }}
{{- end }}
{{- end }}
