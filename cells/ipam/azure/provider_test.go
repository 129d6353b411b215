// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/cells/ipam/azure/armtest"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
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
				c.AddPrefix("public", "203.0.113.0/30", map[string]string{"net": "egress"})
				n := serve(t, c)
				return cloudtest.Subject{
					New:   func(d *outside.Door) cloudipam.Provider { return providerOf(managed, d, n) },
					Node:  nodeOf(id),
					Other: other, Changes: c.Changes, Breaker: &breaker, Fixed: true, Static: map[string]string{"net": "egress"},
				}
			})
		})
	}
}

// caused is the context of a decision.
func caused(t *testing.T) context.Context {
	return explain.WithCause(t.Context(), &explain.Cause{Rule: "ipam.azure test"})
}

// doorOf is a door of a module in its term.
func doorOf(t testing.TB, edit func(*outside.Scope)) *outside.Door {
	fence := leading.Unfenced()
	t.Cleanup(fence.Close)
	s := outside.Scope{
		Module: cell.ModuleInfo{ID: "ipam.azure", Term: "leader"}, Log: slog.New(slog.DiscardHandler),
		Health: health.NewTree().Reporter("ipam.azure"), Fence: fence, Book: explain.NewHistory(),
	}
	edit(&s)
	return outside.New(s, "azure", outside.Limits{QPS: 1e6, Burst: 1e6})
}

// inTerm is a provider in its term, with its health.
func inTerm(t testing.TB, c Config, n network) (*provider, *health.Tree) {
	t.Helper()
	tree := health.NewTree()
	p := providerOf(c, doorOf(t, func(*outside.Scope) {}), n)
	p.Health = tree.Reporter("ipam.azure")
	return p, tree
}

// degraded is what health says.
func degraded(of *health.Tree) (text string) {
	for _, s := range of.Degraded() {
		text += s.Message + "\n"
	}
	return text
}

func readAll(t testing.TB, p *provider) *cloudipam.State {
	t.Helper()
	s, err := p.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// AZIPAM-2: a credential that comes first is used as soon as it can be.
func TestCredentialThatComesLater(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	id := c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3"})
	file := filepath.Join(t.TempDir(), "auth.json")
	for name, value := range map[string]string{
		"AZURE_AUTH_LOCATION": file, "AZURE_CLIENT_ID": "e", "AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_SECRET": "s", "AZURE_FEDERATED_TOKEN_FILE": "",
	} {
		t.Setenv(name, value)
	}
	p, _ := inTerm(t, Config{}, serve(t, c))
	source := func() string {
		p.chosenAt = time.Time{} // long ago
		if readAll(t, p).Instances[id] == nil {
			t.Error("the machine is not read")
		}
		return p.api.identity.source
	}
	if of := source(); !strings.HasPrefix(of, "the client e of the environment") {
		t.Errorf("without the file %s is used", of)
	}
	before := p.api
	if source(); p.api != before {
		t.Error("the clients are made again, and nothing has changed")
	}
	if err := os.WriteFile(file, []byte(`{"clientId": "c", "clientSecret": "s", "tenantId": "tenant"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if of := source(); !strings.HasPrefix(of, "the file "+file) {
		t.Errorf("with the file %s is used", of)
	}
}
