// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/skep-operator/skep/cells/ipam/azure/armtest"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/health"
)

// managed are options that leave the subscription, the group and the cloud to instance metadata.
var managed = Config{AzureUserAssignedIdentityID: "client"}

// serve runs a cloud.
func serve(t testing.TB, c *armtest.Cloud) network {
	t.Helper()
	n, stop := c.Network()
	t.Cleanup(stop)
	return n
}

func providerOf(c Config, d *outside.Door, n network) *provider {
	return newProvider(params{Config: c, Server: d, Network: n, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("ipam.azure")}).(*provider)
}

func nodeOf(id string) *cloudipam.Node {
	return &cloudipam.Node{Name: "a", InstanceID: id, Spec: &v2.CiliumNodeSpec{InstanceID: id}, Status: &v2.CiliumNodeStatus{}}
}

// The promises of providers, for machines of scale sets and for stand-alone ones.
func TestProvider(t *testing.T) {
	for name, scaleSet := range map[string]string{"scale set": "pool1", "alone": ""} {
		t.Run(name, func(t *testing.T) {
			cloudtest.Check(t, func(t *testing.T) cloudtest.Subject {
				c := armtest.NewCloud("10.240.0.0/16")
				var breaker cloudtest.Breaker
				c.Fault = func(string) (f armtest.Fault) {
					if breaker.Fails() {
						f.Status, f.Code = http.StatusServiceUnavailable, "ServiceUnavailable"
					}
					return f
				}
				id := c.Run(armtest.Machine{ScaleSet: scaleSet, Name: "3"})
				other := c.Run(armtest.Machine{ScaleSet: scaleSet, Name: "4"})
				n := serve(t, c)
				return cloudtest.Subject{
					New:   func(d *outside.Door) cloudipam.Provider { return providerOf(managed, d, n) },
					Node:  nodeOf(id),
					Other: other, Changes: c.Changes, Breaker: &breaker, Fixed: true,
				}
			})
		})
	}
}
