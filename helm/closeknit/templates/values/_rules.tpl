{{/* What no schema can say of the values: whether they fit together, and what a cluster refuses only half-way through an
     upgrade. Adds to .judge.faults; the types are right. Call with (dict "root" $ "judge"). */}}
{{- define "closeknit.values.rules" -}}
{{- $root := .root }}
{{- $judge := .judge }}
{{- $values := .root.Values }}
{{- include "closeknit.rules.registry" . }}
{{- include "closeknit.rules.release" . }}
{{- include "closeknit.rules.kinds" . }}
{{- range $component := list "operator" "agent" }}
{{- $of := get $values $component }}
{{- include "closeknit.rules.resources" (dict "judge" $judge "path" (printf "%s.resources" $component) "resources" ($of.resources | default dict)) }}
{{- include "closeknit.rules.tolerations" (dict "judge" $judge "path" (printf "%s.tolerations" $component) "tolerations" $of.tolerations) }}
{{- include "closeknit.rules.env" (dict "judge" $judge "path" (printf "%s.extraEnv" $component) "env" $of.extraEnv "own" (ternary (list "NODE_NAME" "POD" "POD_NAME" "POD_NAMESPACE" "NVIDIA_VISIBLE_DEVICES" "NVIDIA_DRIVER_CAPABILITIES") list (eq $component "agent"))) }}
{{- include "closeknit.rules.arguments" (dict "judge" $judge "component" $component "arguments" $of.extraArgs) }}
{{- include "closeknit.rules.labels" (dict "judge" $judge "path" (printf "%s.podLabels" $component) "labels" $of.podLabels) }}
{{- include "closeknit.rules.volumes" (dict "judge" $judge "component" $component "of" $of) }}
{{- $pod := $of.podSecurityContext | default dict }}
{{- $container := $of.securityContext | default dict }}
{{- $user := toString (get $container "runAsUser" | default (get $pod "runAsUser")) }}
{{- if hasKey $container "runAsUser" }}{{ $user = toString $container.runAsUser }}{{ end }}
{{- if and (eq $user "0") (hasKey $container "runAsNonRoot" | ternary $container.runAsNonRoot $pod.runAsNonRoot) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s: runAsUser is 0, which is root, and runAsNonRoot is true, so that the kubelet starts nothing: neither needs root, leave runAsUser out" $component)) }}
{{- end }}
{{- if and $container.privileged (eq (toString $container.allowPrivilegeEscalation) "false") }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.securityContext is privileged without allowPrivilegeEscalation, which the API server refuses; it needs neither: leave privileged out" $component)) }}
{{- end }}
{{- if and (not $of.serviceAccount.create) (not $of.serviceAccount.name) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.serviceAccount.create is false, and name is empty: the policies fence an account by its name, and the namespace's default account is everybody's; set %s.serviceAccount.name to the one you have made" $component $component)) }}
{{- else if eq $of.serviceAccount.name "default" }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.serviceAccount.name is default, the account of every Pod in the namespace that names none, and all of them would hold the %s's rights; name another" $component $component)) }}
{{- else if eq $of.serviceAccount.name "closeknit-test" }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.serviceAccount.name is closeknit-test, the account that `helm test` runs with; name another" $component)) }}
{{- end }}
{{- end }}
{{- include "closeknit.rules.labels" (dict "judge" $judge "path" "commonLabels" "labels" $values.commonLabels) }}
{{- if eq (include "closeknit.operator.account" $root) (include "closeknit.agent.account" $root) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "operator.serviceAccount.name and agent.serviceAccount.name are both %q: every node's agent would hold the operator's rights; give them different accounts" (include "closeknit.agent.account" $root))) }}
{{- end }}
{{- with $values.metrics.certificate }}
{{- if and .certManager.enabled .secretName }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "metrics.certificate has a secretName, %s, and certManager.enabled, which keeps a Secret of its own: set one of both" .secretName)) }}
{{- end }}
{{- if and .certManager.issuerRef (not .certManager.issuerRef.name) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" "metrics.certificate.certManager.issuerRef has no name: name the Issuer, or leave issuerRef empty for a certificate that signs itself") }}
{{- end }}
{{- end }}
{{- $asked := lookup "v1" "Namespace" "" "kube-system" }}
{{- if and $asked $values.agent.enabled (eq $values.agent.access "Claim") (not (include "closeknit.adminAccess" $root)) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "agent.access is Claim, and the API server refuses such a claim until an administrator has labelled the namespace: kubectl label namespace %s resource.kubernetes.io/admin-access=true (create it first, where it is not there)" $root.Release.Namespace)) }}
{{- end }}
{{- $seen := dict }}
{{- range $values.rbac.namespaces }}
{{- if hasKey $seen . }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "rbac.namespaces names %s twice: leave one out" .)) }}
{{- else if or (hasPrefix "kube-" .) (eq . $root.Release.Namespace) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "rbac.namespaces names %s, and jobs may not run in the operator's own namespace or in one that begins with kube-: leave it out" .)) }}
{{- else if and $asked (not (lookup "v1" "Namespace" "" .)) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "rbac.namespaces names %s, which is not there: create the namespace first, or leave it out" .)) }}
{{- end }}
{{- $_ := set $seen . true }}
{{- end }}
{{- range $index, $peer := $values.networkPolicy.metricsFrom }}
{{- if and $peer.ipBlock (gt (len $peer) 1) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "networkPolicy.metricsFrom[%d] has an ipBlock and a selector: make a peer of each" $index)) }}
{{- end }}
{{- end }}
{{- range $who := list "planners" "topologyViewers" }}
{{- range $index, $subject := get $values.rbac $who | default list }}
{{- if and (eq $subject.kind "ServiceAccount") (not $subject.namespace) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "rbac.%s[%d] is a ServiceAccount without its namespace: add it" $who $index)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $levels := dict }}
{{- range $index, $level := $values.clusterTopology.levels }}
{{- if has $level.name (list "host" "nvlink-domain") }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "clusterTopology.levels[%d].name is %s, a level that closeknit adds itself: leave it out" $index $level.name)) }}
{{- else if hasKey $levels $level.name }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "clusterTopology.levels names %s twice: give each level a name of its own" $level.name)) }}
{{- end }}
{{- $_ := set $levels $level.name true }}
{{- end }}
{{- if gt (len ($values.clusterTopology.levels | default list)) 15 }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "clusterTopology.levels has %d levels, and a ClusterTopology takes 15: leave out those that join no more than the next inner one" (len $values.clusterTopology.levels))) }}
{{- end }}
{{- end }}

{{/* A second release would take the roles and policies of the first, by --take-ownership say: its operator could do nothing
     then, and an uninstall of the second would take the fences away. What is left of one that is gone is no release. */}}
{{- define "closeknit.rules.release" -}}
{{- $release := .root.Release }}
{{- $binding := lookup "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" "" "closeknit-operator" }}
{{- with $binding.subjects }}
{{- $namespace := (first .).namespace }}
{{- $name := get ($binding.metadata.annotations | default dict) "meta.helm.sh/release-name" | default $release.Name }}
{{- if and (or (ne $namespace $release.Namespace) (ne $name $release.Name)) (lookup "apps/v1" "Deployment" $namespace "closeknit-operator") }}
{{- include "closeknit.values.refuse" (dict "judge" $.judge "fault" (printf "closeknit runs in this cluster already, as release %s in namespace %s, and a cluster has one: upgrade that one, or uninstall it first" $name $namespace)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Kinds of others that the values want, and that the cluster does not have: Helm's own words name none of our values. */}}
{{- define "closeknit.rules.kinds" -}}
{{- $root := .root }}
{{- $judge := .judge }}
{{- $metrics := .root.Values.metrics }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- $later := "the Prometheus operator's CustomResourceDefinitions first, or set it to auto: then a later upgrade brings it" }}
{{- range list
  (list $metrics.serviceMonitor.enabled "metrics.serviceMonitor" "monitoring.coreos.com/v1" "ServiceMonitor" $later)
  (list $metrics.prometheusRule.enabled "metrics.prometheusRule" "monitoring.coreos.com/v1" "PrometheusRule" $later)
  (list $metrics.certificate.certManager.enabled "metrics.certificate.certManager" "cert-manager.io/v1" "Certificate" "cert-manager first, or set it to false")
}}
{{- if and (eq (toString (index . 0)) "true") (not ($root.Capabilities.APIVersions.Has (printf "%s/%s" (index . 2) (index . 3)))) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.enabled is true, and this cluster has no kind %s of %s: install %s" (index . 1) (index . 3) (index . 2) (index . 4))) }}
{{- end }}
{{- end }}
{{- if and (not $root.Values.crds.install) (include "closeknit.topology" $root) (not ($root.Capabilities.APIVersions.Has "closeknit.dev/v1alpha1/ClusterTopology")) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" "clusterTopology is set, crds.install is false, and this cluster has no kind ClusterTopology of closeknit.dev/v1alpha1: apply the files of crds/ first") }}
{{- end }}
{{- end }}
{{- end }}

{{- define "closeknit.rules.registry" -}}
{{- $root := .root }}
{{- $judge := .judge }}
{{- $values := .root.Values }}
{{- if not (or $values.image.registry ($values.global | default dict).imageRegistry) }}
{{- $bare := list }}
{{- range $component := list "operator" "agent" }}
{{- if and (or (eq $component "operator") $values.agent.enabled $values.operator.restartInPlace) (not (include "closeknit.ownRegistry" (get $values $component).image.repository)) }}
{{- $bare = append $bare (get $values $component).image.repository }}
{{- end }}
{{- end }}
{{- if $bare }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "image.registry is empty: closeknit publishes no images yet, and nodes would take %s from a registry where anybody may own that name. Build both images (docs/images.md), push them, and set image.registry to where they are, such as registry.example.com/team" (join " and " $bare))) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "closeknit.rules.resources" -}}
{{- $judge := .judge }}
{{- $path := .path }}
{{- $resources := .resources }}
{{- $quantity := "^([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$" }}
{{- range $kind := list "requests" "limits" }}
{{- range $name, $value := get $resources $kind | default dict }}
{{- $here := printf "%s.%s.%s" $path $kind $name }}
{{- $text := include "closeknit.number" $value }}
{{- if not (or (has $name (list "cpu" "memory" "ephemeral-storage")) (hasPrefix "hugepages-" $name) (contains "/" $name)) }}
{{- $near := include "closeknit.nearest" (dict "name" $name "names" (list "cpu" "memory" "ephemeral-storage")) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s: a container cannot ask for %s: %s" $here $name (ternary (printf "did you mean %s?" $near) "write cpu, memory or ephemeral-storage" (ne $near "")))) }}
{{- else if hasPrefix "nvidia.com/" $name }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s: it would take GPUs from the jobs, and neither operator nor agent needs one to look at them: leave it out" $here)) }}
{{- else if not (regexMatch $quantity $text) }}
{{- /* the pattern of the schema has told of it */}}
{{- else if and (eq $name "memory") (or (hasSuffix "m" $text) (lt (include "closeknit.quantity" $text | float64) 1048576.0)) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s is %s, less than a MiB: did you mean %sMi?" $here $text (regexFind "^[0-9.]+" $text))) }}
{{- else if and (eq $name "cpu") (gt (include "closeknit.quantity" $text | float64) 4096.0) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s is %s, more than 4,096 cores: write 500m for half a core, 2 for two" $here $text)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $limits := $resources.limits | default dict }}
{{- range $name, $value := $resources.requests | default dict }}
{{- if hasKey $limits $name }}
{{- $asked := include "closeknit.number" $value }}
{{- $most := include "closeknit.number" (get $limits $name) }}
{{- if and (regexMatch $quantity $asked) (regexMatch $quantity $most) }}
{{- if gt (include "closeknit.quantity" $asked | float64) (include "closeknit.quantity" $most | float64) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.requests.%s is %s and limits.%s is %s: a container cannot ask for more than its limit; raise the limit or lower the request" $path $name $asked $name $most)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A quantity that may have come as a number, as text. */}}
{{- define "closeknit.number" -}}
{{- if kindIs "float64" . }}{{ if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* The number that a quantity stands for. */}}
{{- define "closeknit.quantity" -}}
{{- $number := regexFind "^[0-9.]+([eE][-+]?[0-9]+)?" . }}
{{- $factors := dict "" 1.0 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 }}
{{- mulf (float64 $number) (get $factors (trimPrefix $number .)) }}
{{- end }}

{{- define "closeknit.rules.tolerations" -}}
{{- $judge := .judge }}
{{- $path := .path }}
{{- range $index, $toleration := .tolerations }}
{{- $here := printf "%s[%d]" $path $index }}
{{- $operator := $toleration.operator | default "Equal" }}
{{- if and (eq $operator "Exists") $toleration.value }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s has a value, which Exists does not look at: leave the value out, or write operator: Equal" $here)) }}
{{- else if and (not $toleration.key) (ne $operator "Exists") }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s has no key: name the taint's key, or write operator: Exists to tolerate every taint" $here)) }}
{{- else if and (hasKey $toleration "tolerationSeconds") (ne ($toleration.effect | default "") "NoExecute") }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s has tolerationSeconds, which go with effect: NoExecute alone: add the effect, or leave them out" $here)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "closeknit.rules.env" -}}
{{- $judge := .judge }}
{{- $path := .path }}
{{- $own := .own }}
{{- $seen := dict }}
{{- range $index, $variable := .env }}
{{- $here := printf "%s[%d]" $path $index }}
{{- with $variable.name }}
{{- if has . $own }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s sets %s, which the chart sets itself: leave it out" $here .)) }}
{{- else if hasKey $seen . }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s names %s twice: leave one out" $path .)) }}
{{- end }}
{{- $_ := set $seen . true }}
{{- if and (hasKey $variable "value") $variable.valueFrom }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s has a value and a valueFrom: leave one out" $here)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "closeknit.rules.arguments" -}}
{{- $judge := .judge }}
{{- $component := .component }}
{{- $options := get (get $judge.schema "x-arguments") .component }}
{{- range $index, $argument := .arguments }}
{{- if hasPrefix "--" $argument }}
{{- $here := printf "%s.extraArgs[%d]" $component $index }}
{{- $option := splitList "=" $argument | first }}
{{- if not (hasKey $options $option) }}
{{- $near := include "closeknit.nearest" (dict "name" $option "names" (keys $options | sortAlpha)) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s is %s, and closeknit-%s has no such option: %s" $here $option $component (ternary (printf "did you mean %s?" $near) (printf "it has %s" (keys $options | sortAlpha | join ", ")) (ne $near "")))) }}
{{- else if get $options $option }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s is %s, which the chart gives itself: %s" $here $option (get $options $option))) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "closeknit.rules.labels" -}}
{{- $judge := .judge }}
{{- $path := .path }}
{{- range $key, $_ := .labels }}
{{- if hasPrefix "closeknit.dev/" $key }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.%s: keys under closeknit.dev/ tell what the operator has made, and the API server refuses them of others: take another prefix" $path $key)) }}
{{- else if has $key (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "helm.sh/chart") }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.%s: the chart sets this label itself, and finds its Pods by such: leave it out" $path $key)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "closeknit.rules.volumes" -}}
{{- $judge := .judge }}
{{- $component := .component }}
{{- $names := dict }}
{{- range $index, $volume := .of.extraVolumes }}
{{- if has $volume.name (list "tmp" "metrics-certificate" "pod-resources" "host-sys" "kubelet-config") }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.extraVolumes[%d] is called %s, as a volume of the chart's own: take another name" $component $index $volume.name)) }}
{{- else if hasKey $names ($volume.name | default "") }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.extraVolumes names %s twice: leave one out" $component $volume.name)) }}
{{- end }}
{{- $_ := set $names ($volume.name | default "") true }}
{{- if lt (len $volume) 2 }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.extraVolumes[%d] does not say what it holds: add a configMap, a secret or another source" $component $index)) }}
{{- else if gt (len $volume) 2 }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.extraVolumes[%d] holds %s at once: make a volume of each" $component $index (omit $volume "name" | keys | sortAlpha | join " and "))) }}
{{- end }}
{{- end }}
{{- $paths := dict "/tmp" true "/sys" true "/var/lib/kubelet/pod-resources" true "/etc/closeknit/kubelet-configuration" true "/etc/closeknit/metrics-certificate" true }}
{{- range $index, $mount := .of.extraVolumeMounts }}
{{- if hasKey $paths ($mount.mountPath | default "") }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.extraVolumeMounts[%d] mounts at %s, where something is mounted already: take another path" $component $index $mount.mountPath)) }}
{{- end }}
{{- $_ := set $paths ($mount.mountPath | default "") true }}
{{- if not (hasKey $names ($mount.name | default "")) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s.extraVolumeMounts[%d] mounts %s, which is none of %s.extraVolumes: add the volume" $component $index ($mount.name | default "a volume without a name") $component)) }}
{{- end }}
{{- end }}
{{- end }}
