// Command coredns is the cluster's DNS with the plugins that a test cluster needs, and no others: upstream's own program
// links some fifty, cloud clients among them, and takes four times as long to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/coredns/coredns/coremain"
)

// A request goes through the plugins in this order.
func init() { dnsserver.Directives = []string{"errors", "kubernetes", "template"} }

func main() { coremain.Run() }
