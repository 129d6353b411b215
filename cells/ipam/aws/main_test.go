// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/health"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

const unreachable = "--k8s-api-server=http://127.0.0.1:1"

func TestCell(t *testing.T) {
	serve(t, ec2test.New())
	celltest.Check(t, Cell, celltest.With(append(operatortest.Resources, cloudipam.Cell)...), celltest.InTerm("leader"),
		celltest.Args(unreachable, "--ipam=eni"), celltest.OffArgs(unreachable, "--ipam=kubernetes"))
}

// serve points the SDK at a cloud, by variables that it reads itself.
func serve(t testing.TB, c *ec2test.Cloud) {
	t.Helper()
	api, metadata := httptest.NewServer(c), httptest.NewServer(c.Metadata())
	t.Cleanup(api.Close)
	t.Cleanup(metadata.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_EC2": api.URL, "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.URL, "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_REGION": "", "AWS_PROFILE": "", "AWS_EC2_METADATA_DISABLED": "",
	} {
		setenv(t, name, value)
	}
}

func setenv(t testing.TB, name, value string) {
	t.Helper()
	if value != "" {
		t.Setenv(name, value)
		return
	}
	t.Setenv(name, "") // restores it
	_ = os.Unsetenv(name)
}

// region is a cloud with a subnet of 200 free addresses and some instances.
func region(kind string, instances ...string) *ec2test.Cloud {
	c := ec2test.New()
	c.AddSubnet("subnet-a", "vpc-1", "eu-west-1a", "10.1.0.0/24", nil)
	c.Fill("subnet-a", 200)
	for _, id := range instances {
		if err := c.Run(id, kind, "subnet-a", nil); err != nil {
			panic(err)
		}
	}
	return c
}

// providerOf returns a provider without a hive.
func providerOf(t testing.TB, config Config, door *outside.Door) *provider {
	t.Helper()
	log, fence := slog.New(slog.DiscardHandler), leading.Unfenced()
	t.Cleanup(fence.Close)
	scope := scopeOf(fence)
	if door == nil {
		door = outside.New(scope, "ec2", outside.Limits{QPS: 1e6, Burst: 1e6})
	}
	s := newSession(sessionParams{Config: config, Cluster: cluster.DefaultConfig, EC2: door, Scope: scope, Log: log})
	t.Cleanup(func() { _ = s.connections().Stop(t.Context()) })
	u := newUpkeep(s, reconcile.Deps{Module: scope.Module, Log: log, Health: scope.Health})
	p, err := newProvider(config, cloudipam.Config{}, s, u, log, scope.Health)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*provider)
}

func scopeOf(fence *leading.Fence) outside.Scope {
	return outside.Scope{
		Module: cell.ModuleInfo{ID: "ipam.aws", Term: "leader"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("ipam.aws"),
		Fence: fence, Book: explain.NewHistory(),
	}
}

// AWS-1: the provider keeps the promises of the contract.
func TestProvider(t *testing.T) {
	for name, config := range map[string]Config{"default": {UpdateEC2AdapterLimitViaAPI: true}} {
		t.Run(name, func(t *testing.T) {
			cloudtest.Check(t, func(t *testing.T) cloudtest.Subject {
				c := region("m5.large", "i-1", "i-2")
				c.AddIPv6("subnet-a", "2001:db8:0:a::/64")
				var breaker cloudtest.Breaker
				c.Fault = func(string, map[string]string) (f ec2test.Fault) {
					if breaker.Fails() {
						f.Refuse = &ec2test.Error{Status: http.StatusInternalServerError, Code: "InternalError", Message: "An internal error has occurred"}
					}
					return f
				}
				c.AllocateAddress("eipalloc-1", "203.0.113.7", map[string]string{"pool": "eip"})
				serve(t, c)
				return cloudtest.Subject{
					New:   func(d *outside.Door) cloudipam.Provider { return providerOf(t, config, d) },
					Node:  nodeOf("i-1", nil),
					Other: "i-2", Changes: c.Changes, Breaker: &breaker, Lag: c.Freeze, Static: map[string]string{"pool": "eip"},
				}
			})
		})
	}
}

func nodeOf(instance string, edit func(*v2.CiliumNodeSpec)) *cloudipam.Node {
	spec := &v2.CiliumNodeSpec{InstanceID: instance}
	spec.ENI.InstanceType, spec.ENI.VPCID, spec.ENI.AvailabilityZone, spec.ENI.NodeSubnetID = "m5.large", "vpc-1", "eu-west-1a", "subnet-a"
	if edit != nil {
		edit(spec)
	}
	return &cloudipam.Node{Name: "a", InstanceID: instance, Spec: spec, Status: &v2.CiliumNodeStatus{}}
}

// newFront serves a handler, and returns its URL.
func newFront(t testing.TB, h http.Handler) string {
	t.Helper()
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	return front.URL
}
