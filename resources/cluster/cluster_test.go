// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

// generic is an operator with the allocators of cilium-operator-generic.
func generic() cell.Cell {
	return cell.Set(Cell(DefaultConfig),
		cell.Module("ipam.clusterpool", "Gives out pod CIDRs", cell.Annotate(Allocator{"cluster-pool"})),
		cell.Module("ipam.multipool", "Gives out blocks of pools", cell.Annotate(Allocator{"multi-pool"})))
}

func TestCell(t *testing.T) {
	celltest.Check(t, Cell(DefaultConfig),
		celltest.With(cell.Module("ipam", "Gives out addresses", cell.Annotate(Allocator{"cluster-pool"}))))
}

// Names and defaults of the contract's table of flags; those of agents
// have no operator flag there (CONF-5) and are hidden.
// before120 is the newest release in which slices need CiliumEndpoints.
var before120 = release.All()[2]

// CONF-15 (endpoint-gc 20 to 22, nodes 21 and 22).
func TestEndpointCRD(t *testing.T) {
	noPolicy := func(c *Config) {
		c.DisableEndpointCRD, c.EnablePolicy, c.IdentityAllocationMode = true, "Never", "crd"
		c.EnableK8sNetworkPolicy, c.EnableCiliumNetworkPolicy, c.EnableCiliumClusterwideNetworkPolicy = false, false, false
	}
	for name, test := range map[string]struct {
		change func(*Config)
		want   [4]bool // by release
	}{
		"defaults":                  {func(*Config) {}, [4]bool{true, true, true, true}},
		"switched off, policies on": {func(c *Config) { c.DisableEndpointCRD = true }, [4]bool{true, true, true, true}},
		"with a kvstore":            {func(c *Config) { c.KVStore, c.DisableEndpointCRD = "etcd", true }, [4]bool{}},
		"policies off":              {noPolicy, [4]bool{true, false, false, false}},
		"NetworkPolicies on":        {func(c *Config) { noPolicy(c); c.EnableK8sNetworkPolicy = true }, [4]bool{true, true, true, true}},
		"cluster policies on":       {func(c *Config) { noPolicy(c); c.EnableK8sClusterNetworkPolicy = true }, [4]bool{true, true, true, true}},
		"identities in etcd wanted": {func(c *Config) { noPolicy(c); c.IdentityAllocationMode = "kvstore" }, [4]bool{true, true, true, true}},
		"slices":                    {func(c *Config) { c.DisableEndpointCRD, c.EnableCiliumEndpointSlice = true, true }, [4]bool{true, true, true, false}},
		"slices of pods": {func(c *Config) {
			c.DisableEndpointCRD, c.EnableCiliumEndpointSlice, c.CESControllerMode = true, true, "slim"
		}, [4]bool{}},
	} {
		for i, r := range release.All() {
			c := DefaultConfig
			c.Release = r
			test.change(&c)
			if got := c.EndpointCRD(); got != test.want[i] {
				t.Errorf("%s, %v: %t", name, r, got)
			}
		}
	}
}

// Number 19 of the contract's nodes.md; CONF-15: where agents make no CiliumNodes.
func TestNodeCRD(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   bool
	}{
		"defaults":                  {func(*Config) {}, true},
		"switched off":              {func(c *Config) { c.EnableCiliumNodeCRD = false }, true},
		"delegated":                 {func(c *Config) { c.EnableCiliumNodeCRD, c.IPAM = false, "delegated-plugin" }, false},
		"delegated, with a kvstore": {func(c *Config) { c.EnableCiliumNodeCRD, c.IPAM, c.KVStore = false, "delegated-plugin", "etcd" }, true},
	} {
		c := DefaultConfig
		test.change(&c)
		if got := c.NodeCRD(); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestFlagsAreThoseOfTheContract(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.TagFlags(fs, reflect.ValueOf(DefaultConfig))
	got, hidden := map[string]string{}, []string{}
	fs.VisitAll(func(f *pflag.Flag) {
		got[f.Name] = f.Value.Type() + " " + f.DefValue
		if f.Hidden {
			hidden = append(hidden, f.Name)
		}
	})
	want := map[string]string{
		"clustermesh-enable-mcs-api":               "bool false",
		"clustermesh-default-global-namespace":     "bool true",
		"clustermesh-service-v2":                   "string prefer-legacy",
		"cluster-name":                             "string default",
		"cluster-id":                               "uint32 0",
		"max-connected-clusters":                   "uint32 255",
		"k8s-namespace":                            "string ",
		"enable-ipv4":                              "bool true",
		"enable-ipv6":                              "bool true",
		"ipam":                                     "string cluster-pool",
		"kvstore":                                  "string ",
		"disable-endpoint-crd":                     "bool false",
		"enable-policy":                            "string default",
		"enable-k8s-networkpolicy":                 "bool true",
		"enable-k8s-cluster-network-policy":        "bool false",
		"enable-cilium-network-policy":             "bool true",
		"enable-cilium-clusterwide-network-policy": "bool true",
		"enable-ciliumnode-crd":                    "bool true",
		"enable-ipsec":                             "bool false",
		"enable-wireguard":                         "bool false",
		"identity-allocation-mode":                 "string kvstore",
		"enable-cilium-endpoint-slice":             "bool false",
		"ces-controller-mode":                      "string default",
		"identity-management-mode":                 "string agent",
		"operator-manages-identities":              "bool false",
		"enable-envoy-config":                      "bool false",
		"enable-l2-announcements":                  "bool false",
		"enable-node-ipam":                         "bool false",
		"enable-node-port":                         "bool false",
		"default-lb-service-ipam":                  "string lbipam",
		"k8s-service-proxy-name":                   "string ",
		"enable-bgp-control-plane":                 "bool false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantHidden := []string{
		"clustermesh-service-v2", "disable-endpoint-crd", "enable-bgp-control-plane", "enable-cilium-clusterwide-network-policy", "enable-cilium-network-policy",
		"enable-ciliumnode-crd", "enable-envoy-config", "enable-ipsec", "enable-k8s-cluster-network-policy", "enable-k8s-networkpolicy", "enable-l2-announcements",
		"enable-node-port", "enable-policy", "enable-wireguard",
	}
	if diff := cmp.Diff(wantHidden, hidden); diff != "" {
		t.Error(diff)
	}
}

// IDKV-E14, with other options.
func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		flag   string // that the error is about; "" for none
	}{
		"defaults":               {func(*Config) {}, ""},
		"a mesh of 511":          {func(c *Config) { c.ClusterName, c.ClusterID, c.MaxConnectedClusters = "a", 511, 511 }, ""},
		"a number of the name's": {func(c *Config) { c.ClusterName = "007" }, ""},
		"32 characters":          {func(c *Config) { c.ClusterName = strings.Repeat("a", 32) }, ""},
		"33 characters":          {func(c *Config) { c.ClusterName = strings.Repeat("a", 33) }, "cluster-name"},
		"upper case; number 21 of the contract's heartbeat-and-locks.md": {func(c *Config) { c.ClusterName = "Prod_1" }, "cluster-name"},
		"a dash at the end":      {func(c *Config) { c.ClusterName = "prod-" }, "cluster-name"},
		"a namespace":            {func(c *Config) { c.K8sNamespace = "kube-system" }, ""},
		"a path for a namespace": {func(c *Config) { c.K8sNamespace = "../../x" }, "k8s-namespace"},
		"a long namespace":       {func(c *Config) { c.K8sNamespace = strings.Repeat("a", 64) }, "k8s-namespace"},
		"no name":                {func(c *Config) { c.ClusterName = "" }, "cluster-name"},
		"a number without a name; number 17 of the contract's heartbeat-and-locks.md": {func(c *Config) { c.ClusterID = 3 }, "cluster-name"},
		"a number out of range":  {func(c *Config) { c.ClusterName, c.ClusterID = "a", 256 }, "cluster-id"},
		"another size of a mesh": {func(c *Config) { c.MaxConnectedClusters = 300 }, "max-connected-clusters"},
		"another kvstore":        {func(c *Config) { c.KVStore = "consul" }, "kvstore"},
		"another identity mode":  {func(c *Config) { c.IdentityAllocationMode = "etcd" }, "identity-allocation-mode"},
		"double writes":          {func(c *Config) { c.IdentityAllocationMode = "doublewrite-readcrd" }, ""},
		"another IPAM":           {func(c *Config) { c.IPAM = "dhcp" }, "ipam"},
		"slices without endpoints": {func(c *Config) {
			c.Release, c.KVStore, c.DisableEndpointCRD, c.EnableCiliumEndpointSlice = before120, "etcd", true, true
		}, "enable-cilium-endpoint-slice"},
		"slices without endpoints, 1.20": {func(c *Config) { c.KVStore, c.DisableEndpointCRD, c.EnableCiliumEndpointSlice = "etcd", true, true }, ""},
		"slices of pods, without endpoints": {func(c *Config) {
			c.KVStore, c.DisableEndpointCRD, c.IdentityAllocationMode = "etcd", true, "crd"
			c.EnableCiliumEndpointSlice, c.CESControllerMode, c.IdentityManagementMode = true, "slim", "operator"
		}, ""},
		"slices of pods whose agents make identities; number 30 of the contract's endpoint-slices.md": {func(c *Config) { c.EnableCiliumEndpointSlice, c.CESControllerMode = true, "slim" }, ""},
		"slices of pods with identities in etcd": {func(c *Config) {
			c.KVStore, c.IdentityAllocationMode, c.EnableCiliumEndpointSlice, c.CESControllerMode = "etcd", "kvstore", true, "slim"
		}, "ces-controller-mode"},
		"another source of slices": {func(c *Config) { c.CESControllerMode = "thin" }, "ces-controller-mode"},
		"another maker of identities; number 29 of the contract's identities.md": {func(c *Config) { c.IdentityManagementMode = "sometimes" }, "identity-management-mode"},
		"identities by the operator in etcd":                                     {func(c *Config) { c.KVStore, c.IdentityManagementMode = "etcd", "operator" }, "identity-management-mode"},
		"slices without, not even a kvstore":                                     {func(c *Config) { c.Release, c.DisableEndpointCRD, c.EnableCiliumEndpointSlice = before120, true, true }, "enable-cilium-endpoint-slice"},
	} {
		config := DefaultConfig
		c.change(&config)
		err := cell.ValidateConfig(config)
		if (err == nil) != (c.flag == "") || err != nil && !strings.Contains(err.Error(), c.flag) {
			t.Errorf("%s: %v, want an error about %q", name, err, c.flag)
		}
	}
}

// CONF-8.
func TestWithoutAKVStoreIdentitiesAndEndpointsAreObjects(t *testing.T) {
	c := DefaultConfig
	c.DisableEndpointCRD = true
	if c.IdentityMode() != "crd" || !c.EndpointCRD() {
		t.Errorf("without a kvstore: identities in %s, endpoints as objects: %v", c.IdentityMode(), c.EndpointCRD())
	}
	c.KVStore = "etcd"
	if c.IdentityMode() != "kvstore" || c.EndpointCRD() {
		t.Errorf("with one: identities in %s, endpoints as objects: %v", c.IdentityMode(), c.EndpointCRD())
	}
}

// start runs an operator for a moment.
func start(t *testing.T, name string, cells cell.Cell, environ map[string]string, args ...string) (log string, degraded []health.Status, err error) {
	t.Helper()
	var out bytes.Buffer
	var tree *health.Tree
	cells = cell.Set(cells, cell.Invoke(func(tr *health.Tree) { tree = tr }))
	h := hive.New(name, cells, hive.LogTo(&out), hive.EnvPrefix("CILIUM_"), hive.Environ(func(key string) (string, bool) {
		v, ok := environ[key]
		return v, ok
	}))
	fs := h.FlagSet()
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(fs); err != nil {
		return "", nil, err
	}
	if err = h.Start(t.Context()); err == nil {
		degraded = tree.Degraded()
		err = h.Stop(context.Background())
	}
	return out.String(), degraded, err
}

// CONF-E8, and the section on binaries and IPAM modes.
func TestAnIPAMModeThatThisBinaryLacksIsRefusedOnTheCommandLine(t *testing.T) {
	aws := cell.Set(Cell(DefaultConfig), cell.Module("ipam.aws", "Attaches interfaces", cell.Annotate(Allocator{"eni"})))
	for name, c := range map[string]struct {
		binary string
		cells  cell.Cell
		mode   string
		want   string
	}{
		"served":            {"cilium-operator-generic", generic(), "multi-pool", ""},
		"without allocator": {"cilium-operator-generic", generic(), "kubernetes", ""},
		"crd":               {"cilium-operator-generic", generic(), "crd", ""},
		"delegated":         {"cilium-operator-generic", generic(), "delegated-plugin", ""},
		"eni":               {"cilium-operator-generic", generic(), "eni", "cilium-operator-generic doesn't support --ipam=eni (use cilium-operator-aws)"},
		"azure":             {"cilium-operator-generic", generic(), "azure", "cilium-operator-generic doesn't support --ipam=azure (use cilium-operator-azure)"},
		"cluster-pool":      {"cilium-operator-aws", aws, "cluster-pool", "cilium-operator-aws doesn't support --ipam=cluster-pool (use cilium-operator-generic)"},
		"multi-pool":        {"cilium-operator-aws", aws, "multi-pool", "cilium-operator-aws doesn't support --ipam=multi-pool"},
		"unknown":           {"cilium-operator-generic", generic(), "dhcp", "ipam"},
	} {
		t.Run(name, func(t *testing.T) {
			log, _, err := start(t, c.binary, c.cells, nil, "--ipam="+c.mode)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q\n%s", err, c.want, log)
			}
		})
	}
}

func TestAnIPAMModeOfTheEnvironmentThatThisBinaryLacksHurtsAddressesOnly(t *testing.T) {
	log, degraded, err := start(t, "cilium-operator-generic", generic(), map[string]string{"CILIUM_IPAM": "eni"})
	if err != nil {
		t.Fatal(err)
	}
	want := "eni allocator is not supported by this version of cilium-operator-generic"
	if strings.Count(log, want) != 1 {
		t.Errorf("the log does not say once that the %s:\n%s", want, log)
	}
	if len(degraded) != 1 || degraded[0].ID != "cluster.options" || !strings.Contains(degraded[0].Message, want) {
		t.Errorf("degraded: %v", degraded)
	}
}

// MODE-4: a program that is called by a cloud's name, and cannot serve it, does not take the
// place of one that can.
func TestAProgramOfACloudThatIsNotBuiltSaysSo(t *testing.T) {
	for binary, mode := range map[string]string{"cilium-operator-aws": "eni", "cilium-operator-azure": "azure", "cilium-operator-alibabacloud": "alibabacloud"} {
		for _, ipam := range []string{mode, "", "cluster-pool"} {
			_, _, err := start(t, binary, generic(), map[string]string{"CILIUM_IPAM": ipam})
			if err == nil || !strings.Contains(err.Error(), binary+" has no "+mode+" allocator: it is not built yet") {
				t.Errorf("%s with ipam %q: %v", binary, ipam, err)
			}
		}
	}
}

// What replaces the allocator of a mode serves the mode, unless it says otherwise: validate and the run agree.
func TestAReplacedAllocatorServesItsMode(t *testing.T) {
	list := cell.Set(Cell(DefaultConfig), cell.Module("ipam", "Has parts",
		cell.Module("clusterpool", "Gives out pod CIDRs", cell.Annotate(Allocator{"cluster-pool"}))))
	fjord := cell.Module("fjord.ipam", "Gives out blocks per rack")
	other := cell.Module("fjord.ipam", "Gives out addresses of interfaces", cell.Annotate(Allocator{"eni"}))
	for name, test := range map[string]struct {
		cells cell.Cells
		mode  string
		want  string
	}{
		"replaced":                {list.Replace("ipam.clusterpool", fjord), "cluster-pool", ""},
		"replaced twice":          {list.Replace("ipam.clusterpool", cell.Module("first", "Gives")).Replace("ipam.first", fjord), "cluster-pool", ""},
		"another mode":            {list.Replace("ipam.clusterpool", other), "eni", ""},
		"the mode that it had":    {list.Replace("ipam.clusterpool", other), "cluster-pool", "doesn't support --ipam=cluster-pool"},
		"the module is not there": {list.Without("ipam.clusterpool"), "cluster-pool", "doesn't support --ipam=cluster-pool"},
	} {
		h := hive.New("fjord-operator", test.cells, hive.LogTo(io.Discard))
		fs := h.FlagSet()
		if err := fs.Parse([]string{"--ipam=" + test.mode}); err != nil {
			t.Fatal(err)
		}
		if err := h.Configure(fs); err != nil {
			t.Fatal(err)
		}
		check, build := h.Check(), h.Build()
		if fmt.Sprint(check) != fmt.Sprint(build) || (check == nil) != (test.want == "") || check != nil && !strings.Contains(check.Error(), test.want) {
			t.Errorf("%s: validate says %v, the run %v; want %q", name, check, build, test.want)
		}
	}
}

// CONF-8.
func TestOptionsThatCannotHoldAreTold(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "",
		"--identity-allocation-mode=kvstore":    "no kvstore is configured",
		"--identity-allocation-mode=crd":        "",
		"--disable-endpoint-crd":                "ignoring disable-endpoint-crd",
		"--disable-endpoint-crd --kvstore=etcd": "",
	} {
		log, _, err := start(t, "cilium-operator-generic", generic(), nil, strings.Fields(args)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if warns := strings.Contains(log, "level=warn"); warns != (want != "") || !strings.Contains(log, want) {
			t.Errorf("%q: want a warning with %q:\n%s", args, want, log)
		}
	}
}
