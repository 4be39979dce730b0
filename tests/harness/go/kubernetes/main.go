// Command controlplane is Kubernetes' own programs in one binary, chosen by the name it is called by.
//
// Linked together they share nearly all of their code: one binary is a quarter of the size, and links in a quarter of
// the time, of separate ones. The kubelet joins by one more row of the table.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's ways to log in
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json, as upstream's main packages
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info on /metrics
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs maps the name of each program to what runs it; it returns the exit code.
var programs = map[string]func() int{
	"kube-apiserver":          func() int { return run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
}

func run(command *cobra.Command) int { return cli.Run(command) }

// runKubectl prints errors the way kubectl does ("Error from server (Forbidden): ..."), which cli.Run would not.
func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}

func main() {
	name := filepath.Base(os.Args[0])
	program, known := programs[name]
	if !known {
		names := make([]string, 0, len(programs))
		for each := range programs {
			names = append(names, each)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "no program is called %q: link this binary as one of %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(program())
}
