{{/* What the agents' ResourceClaimTemplate holds. */}}
{{- define "closeknit.claim" -}}
metadata:
  labels:
    {{- include "closeknit.labels" (dict "root" . "component" "agent") | nindent 4 }}
spec:
  devices:
    requests:
      - name: gpus
        exactly: {deviceClassName: gpu.nvidia.com, allocationMode: All, adminAccess: true}
{{- end }}

{{/* Its name. Nothing in a ResourceClaimTemplate can be changed, and an upgrade changes its labels: so another content has
     another name, and the DaemonSet follows. */}}
{{- define "closeknit.claim.name" -}}
closeknit-agent-{{ include "closeknit.claim" . | sha256sum | trunc 8 }}
{{- end }}
