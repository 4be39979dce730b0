// Command coredns is the cluster's DNS with the plugins that a test cluster needs, and no others: upstream's own program
// links some fifty, cloud clients among them, and takes four times as long to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"

	"github.com/coredns/coredns/coremain"
)

func init() { dnsserver.Directives = []string{"errors", "kubernetes"} }

func main() { coremain.Run() }
