{{/* How many letters one word differs from another by (Levenshtein), without regard to case. Call with (dict "a" "b"). */}}
{{- define "closeknit.distance" -}}
{{- $b := splitList "" (lower .b) }}
{{- $row := untilStep 0 (add1 (len $b) | int) 1 }}
{{- range $i, $x := splitList "" (lower .a) }}
{{- $next := list (add1 $i | int) }}
{{- range $j, $y := $b }}
{{- $changed := add (index $row $j) (ternary 0 1 (eq $x $y)) }}
{{- $next = append $next (min (add1 (index $row (add1 $j | int))) (add1 (index $next $j)) $changed | int) }}
{{- end }}
{{- $row = $next }}
{{- end }}
{{- last $row }}
{{- end }}

{{/* The name most like another, or nothing where none is: at most a third of its letters may differ. Call with (dict "name" "names"). */}}
{{- define "closeknit.nearest" -}}
{{- $most := max 1 (div (len .name) 3) | int }}
{{- $name := .name }}
{{- $best := "" }}
{{- range .names }}
{{- if le (sub (len .) (len $name) | int) $most }}
{{- $distance := include "closeknit.distance" (dict "a" $name "b" .) | int }}
{{- if or (lt $distance $most) (and (eq $distance $most) (not $best)) }}
{{- $best = . }}
{{- $most = $distance }}
{{- end }}
{{- end }}
{{- end }}
{{- $best }}
{{- end }}
