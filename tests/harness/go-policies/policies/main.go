// Command policies has one node heed NetworkPolicies: kube-router's own controller of them, without its routes, its
// proxy of Services and its BGP, which upstream's program links and which take five times as long to build.
//
//	policies --kubeconfig FILE --node NAME
//
// It calls `iptables` and `ipset`, and ends on SIGTERM; the rules that it has made stay.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func run(ctx context.Context, kubeconfig, node string) error {
	login, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(login)
	if err != nil {
		return err
	}
	config := options.NewKubeRouterConfig()
	config.EnableIPv4 = true
	config.HostnameOverride = node
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	all := informers.NewSharedInformerFactory(client, 0)
	pods := all.Core().V1().Pods().Informer()
	policies := all.Networking().V1().NetworkPolicies().Informer()
	namespaces := all.Core().V1().Namespaces().Informer()
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	var sole sync.Mutex
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sole, tables, sets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
		namespaces: controller.NamespaceEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats { // nobody asks for them here
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	go controller.Run(beats, ctx.Done(), &running)
	<-ctx.Done()
	return nil
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how it asks the cluster")
	node := flag.String("node", "", "whose Pods it guards")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig, *node); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}
