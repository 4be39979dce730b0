{{/* Looks at a value, and at all in it, and adds what is wrong to .judge.faults; of what is missing, its path to
     .judge.missing. Call with (dict "value" "schema" "path" "judge"), where judge.schema is files/values.schema.yaml. */}}
{{- define "closeknit.values.look" -}}
{{- $judge := .judge }}
{{- $path := .path }}
{{- $schema := .schema }}
{{- with get $schema "$ref" }}{{ $schema = get $judge.schema.definitions (base .) }}{{ end }}
{{- if kindIs "map" .value }}
{{- $known := get $schema "properties" | default dict }}
{{- $others := get $schema "additionalProperties" }}
{{- $keys := get $schema "propertyNames" | default dict }}
{{- range $name, $value := .value }}
{{- $here := printf "%s.%s" $path $name | trimPrefix "." }}
{{- if hasKey $known $name }}
{{- include "closeknit.values.look" (dict "value" $value "schema" (get $known $name) "path" $here "judge" $judge) }}
{{- else if kindIs "map" $others }}
{{- include "closeknit.values.text" (dict "value" $name "schema" $keys "path" (printf "a key of %s" $path) "judge" $judge) }}
{{- include "closeknit.values.look" (dict "value" $value "schema" $others "path" $here "judge" $judge) }}
{{- else if kindIs "bool" $others }}
{{- include "closeknit.values.unknown" (dict "name" $name "in" $path "path" $here "known" (keys $known | sortAlpha) "judge" $judge) }}
{{- else if eq $path "global" }}
{{- with include "closeknit.nearest" (dict "name" $name "names" (keys $known | sortAlpha)) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s is no value of this chart: did you mean global.%s?" $here .)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $has := .value }}
{{- if eq (get .schema "$ref") "#/definitions/requirement" }}
{{- if and (has $has.operator (list "In" "NotIn")) (not $has.values) }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s has no values: %s needs some, or write operator: Exists" $path $has.operator)) }}
{{- else if and (has $has.operator (list "Exists" "DoesNotExist")) $has.values }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s has values, which %s does not look at: leave them out, or write operator: In" $path $has.operator)) }}
{{- end }}
{{- end }}
{{- range get $schema "required" | default list }}
{{- if not (hasKey $has .) }}
{{- $_ := set $judge "missing" (append $judge.missing (printf "%s.%s" $path . | trimPrefix ".")) }}
{{- end }}
{{- end }}
{{- else if kindIs "slice" .value }}
{{- range $index, $value := .value }}
{{- include "closeknit.values.look" (dict "value" $value "schema" (get $schema "items" | default dict) "path" (printf "%s[%d]" $path $index) "judge" $judge) }}
{{- end }}
{{- else if kindIs "string" .value }}
{{- include "closeknit.values.text" (dict "value" .value "schema" $schema "path" $path "judge" $judge) }}
{{- else if get $schema "x-quoted" }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s is %s, which is no text: put it in quotes, or give it by --set-string" $path (include "closeknit.number" .value))) }}
{{- end }}
{{- end }}

{{- define "closeknit.values.refuse" -}}
{{- $_ := set .judge "faults" (append .judge.faults .fault) }}
{{- end }}

{{/* A text, and what it has to look like. */}}
{{- define "closeknit.values.text" -}}
{{- $schema := .schema }}
{{- $value := .value }}
{{- with get .schema "pattern" }}
{{- if not (regexMatch . $value) }}
{{- $cure := printf "write %s" (get $schema "x-wants") }}
{{- include "closeknit.values.refuse" (dict "judge" $.judge "fault" (printf "%s is %q: %s" $.path (trunc 80 $value) $cure)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What an unknown name was meant to be: what other charts call so, else a name like it beside it, the same name
     elsewhere, or one like it elsewhere. Call with (dict "name" "in" "path" "known" "judge"). */}}
{{- define "closeknit.values.unknown" -}}
{{- $judge := .judge }}
{{- $schema := $judge.schema }}
{{- $whole := regexReplaceAll "\\[[0-9]+\\]" (lower .path) "" }}
{{- $last := lower .name }}
{{- $instead := get $schema "x-instead" }}
{{- $never := get $schema "x-never" }}
{{- $beside := include "closeknit.nearest" (dict "name" .name "names" .known) }}
{{- $said := "" }}
{{- if hasKey $instead $whole }}
{{- $said = printf "set %s" (get $instead $whole) }}
{{- else if hasKey $never $whole }}
{{- $said = get $never $whole }}
{{- else if $beside }}
{{- $said = printf "did you mean %s?" (printf "%s.%s" .in $beside | trimPrefix ".") }}
{{- else if contains "[" .path }}
{{- $said = printf "known here are %s" (join ", " .known) }}
{{- else }}
{{- $places := list }}
{{- if not $judge.paths }}{{ include "closeknit.values.paths" (dict "schema" $schema "path" "" "judge" $judge) }}{{ end }}
{{- $part := splitList "." .path | first }}
{{- range $judge.paths }}
{{- if eq (splitList "." . | last | lower) $last }}{{ $places = append $places . }}{{ end }}
{{- end }}
{{- $near := list }}
{{- range $places }}{{ if hasPrefix (printf "%s." $part) . }}{{ $near = append $near . }}{{ end }}{{ end }}
{{- with $near | default $places }}
{{- $said = printf "did you mean %s?" (join " or " (slice . 0 (min 4 (len .) | int))) }}
{{- else }}
{{- if hasKey $instead $last }}
{{- $said = printf "set %s" (get $instead $last) }}
{{- else if hasKey $never $last }}
{{- $said = get $never $last }}
{{- else }}
{{- $names := dict }}
{{- range $judge.paths }}{{ $_ := set $names (splitList "." . | last) . }}{{ end }}
{{- with include "closeknit.nearest" (dict "name" .name "names" (keys $names | sortAlpha)) }}
{{- $said = printf "did you mean %s?" (get $names .) }}
{{- else }}
{{- $said = printf "known %s are %s" (ternary "here" (printf "in %s" .in) (eq .in "")) (join ", " .known) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- include "closeknit.values.refuse" (dict "judge" $judge "fault" (printf "%s is no value of this chart: %s" (trunc 120 .path) $said)) }}
{{- end }}

{{/* Adds the paths of all values that the schema names to .judge.paths. */}}
{{- define "closeknit.values.paths" -}}
{{- $judge := .judge }}
{{- $path := .path }}
{{- $schema := .schema }}
{{- with get $schema "$ref" }}{{ $schema = get $judge.schema.definitions (base .) }}{{ end }}
{{- range $name, $inner := get $schema "properties" | default dict }}
{{- $here := printf "%s.%s" $path $name | trimPrefix "." }}
{{- $_ := set $judge "paths" (append $judge.paths $here) }}
{{- include "closeknit.values.paths" (dict "schema" $inner "path" $here "judge" $judge) }}
{{- end }}
{{- end }}
