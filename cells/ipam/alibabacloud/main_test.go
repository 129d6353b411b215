// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/ecstest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/outside/outsidetest"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/health"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

const unreachable = "--k8s-api-server=http://127.0.0.1:1"

// The flags are documented, and the module is built where it is enabled.
func TestCell(t *testing.T) {
	n := serve(t, ecstest.New())
	celltest.Check(t, newCell(func() network { return n }), celltest.With(append([]cell.Cell{cloudipam.Cell}, operatortest.Resources...)...), celltest.InTerm("leader"),
		celltest.Args(unreachable, "--ipam=alibabacloud"), celltest.OffArgs(unreachable, "--ipam=kubernetes"))
}

// ALI-2: values that cannot be meant are refused with what is allowed.
func TestInvalidOptions(t *testing.T) {
	many := map[string]string{}
	for _, a := range "abcdefghijklmnopqrstu" {
		many[string(a)] = ""
	}
	for name, test := range map[string]struct {
		config Config
		filter map[string]string
		want   string // "" for valid
	}{
		"none":              {Config{}, nil, ""},
		"all":               {Config{AlibabaCloudRegionID: "cn-hangzhou", AlibabaCloudVPCID: "vpc-bp67acfmxazb4p"}, map[string]string{"a": "b"}, ""},
		"a region's name":   {Config{AlibabaCloudRegionID: "China (Hangzhou)"}, nil, "must be the id of a region"},
		"a host":            {Config{AlibabaCloudRegionID: "ecs.cn-hangzhou.aliyuncs.com"}, nil, "must be the id of a region"},
		"a vSwitch":         {Config{AlibabaCloudVPCID: "vsw-bp1"}, nil, "must be the id of a VPC"},
		"21 tags":           {Config{}, many, "at most 20 tags"},
		"a tag without key": {Config{}, map[string]string{"": "x"}, "the key is empty"},
		"a long value":      {Config{}, map[string]string{"a": strings.Repeat("x", 129)}, "at most 128 characters"},
	} {
		text := ""
		for _, err := range []error{test.config.Validate(), checkFilter(cloudipam.Config{InstanceTagsFilter: test.filter})} {
			if err != nil {
				text += err.Error()
			}
		}
		if (text == "") != (test.want == "") || !strings.Contains(text, test.want) {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}

const keyID = "LTAI-operator"

// serve runs a region, and has the operator use a key.
func serve(t testing.TB, c *ecstest.Cloud) network {
	t.Helper()
	return serveBy(t, c.Handler())
}

func serveBy(t testing.TB, h http.Handler) network {
	t.Helper()
	for _, name := range []string{envKeyID, envKeySecret, envToken, envOIDCFile, envRole, envURI} {
		setenv(t, name, "")
	}
	setenv(t, envKeyID, keyID)
	setenv(t, envKeySecret, "secret")
	n, stop := outsidetest.Front(h)
	t.Cleanup(stop)
	return network{n, time.Millisecond}
}

func setenv(t testing.TB, name, value string) {
	t.Helper()
	t.Setenv(name, value) // restores it
	if value == "" {
		_ = os.Unsetenv(name)
	}
}

// region is a cloud with a vSwitch of 200 free addresses and instances.
func region(kind string, instances ...string) *ecstest.Cloud {
	c := ecstest.New()
	c.AddVSwitch("vsw-a", ecstest.VPC, c.Zone, "10.1.0.0/24", nil)
	c.Fill("vsw-a", 200)
	for _, id := range instances {
		c.Run(id, kind, "vsw-a", nil)
	}
	return c
}

func scopeOf(fence *leading.Fence) outside.Scope {
	return outside.Scope{
		Module: cell.ModuleInfo{ID: "ipam.alibabacloud", Term: "leader"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("ipam.alibabacloud"),
		Fence: fence, Book: explain.NewHistory(),
	}
}

// providerOf returns a provider without a hive. door may be nil.
func providerOf(t testing.TB, c Config, n network, door *outside.Door) *provider {
	t.Helper()
	fence := leading.Unfenced()
	t.Cleanup(fence.Close)
	scope := scopeOf(fence)
	if door == nil {
		door = outside.New(scope, "alibabacloud", outside.Limits{QPS: 1e6, Burst: 1e6})
	}
	s := newSession(sessionParams{Config: c, Server: door, Network: n, Log: scope.Log})
	u := newUpkeep(s, reconcile.Deps{Module: scope.Module, Log: scope.Log, Health: scope.Health})
	return newProvider(cloudipam.Config{}, s, u, scope.Log).(*provider)
}

func nodeOf(instance string, edit func(*v2.AlibabaCloudSpec)) *cloudipam.Node {
	spec := &v2.CiliumNodeSpec{InstanceID: instance}
	spec.AlibabaCloud = v2.AlibabaCloudSpec{InstanceType: "ecs.large", VPCID: ecstest.VPC, AvailabilityZone: "cn-test-a"}
	if edit != nil {
		edit(&spec.AlibabaCloud)
	}
	return &cloudipam.Node{Name: "a", InstanceID: instance, Spec: spec, Status: &v2.CiliumNodeStatus{}}
}
