// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

const (
	network1 = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/one"
	network2 = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/two"
)

func configOfTest(name, address, subnet, state string, primary bool) *armnetwork.InterfaceIPConfiguration {
	return &armnetwork.InterfaceIPConfiguration{Name: &name, Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{
		PrivateIPAddress: &address, Primary: &primary, Subnet: &armnetwork.Subnet{ID: &subnet}, ProvisioningState: to.Ptr(armnetwork.ProvisioningState(state)),
	}}
}

func nicOfTest(name string, configs ...*armnetwork.InterfaceIPConfiguration) *armnetwork.Interface {
	return &armnetwork.Interface{ID: to.Ptr("/x/" + name), Name: &name, Properties: &armnetwork.InterfacePropertiesFormat{
		VirtualMachine: &armnetwork.SubResource{ID: to.Ptr("/VM")}, IPConfigurations: configs,
	}}
}

// subnetsForTest have free addresses by id.
func subnetsForTest(free map[string]int) map[string]cloudipam.Subnet {
	all := map[string]cloudipam.Subnet{}
	for id, n := range free {
		all[id] = cloudipam.Subnet{ID: id, Free: n, Detail: vnetSubnet{reserved: strings.HasSuffix(id, "delegated")}}
	}
	return all
}

// AZIPAM-8, AZIPAM-9 and AZIPAM-E5: which addresses are in the pool, by state, and by who has added them.
func TestAddresses(t *testing.T) {
	var configs []*armnetwork.InterfaceIPConfiguration
	for _, state := range []string{"Succeeded", "Updating", "Failed"} {
		for _, name := range []string{"Cilium-", "other-"} {
			for _, at := range []string{"new", "pool", "used"} {
				configs = append(configs, configOfTest(name+state+at, "10.0.0."+string(rune('1'+len(configs)%9))+string(rune('0'+len(configs)/9)), network1+"/subnets/a", state, false))
			}
		}
	}
	n := &cloudipam.Node{Name: "a", InstanceID: "/vm", Spec: &v2.CiliumNodeSpec{}, Status: &v2.CiliumNodeStatus{}}
	n.Spec.IPAM.Pool, n.Status.IPAM.Used = map[string]v2.AllocationIP{}, map[string]v2.AllocationIP{}
	names := map[string]string{}
	for _, c := range configs {
		address := *c.Properties.PrivateIPAddress
		names[address] = *c.Name
		if strings.HasSuffix(*c.Name, "pool") {
			n.Spec.IPAM.Pool[address] = v2.AllocationIP{}
		}
		if strings.HasSuffix(*c.Name, "used") {
			n.Status.IPAM.Used[address] = v2.AllocationIP{}
		}
	}
	for only, want := range map[bool][]string{
		false: {
			"Cilium-Failedused", "Cilium-Succeedednew", "Cilium-Succeededpool", "Cilium-Succeededused", "Cilium-Updatingpool", "Cilium-Updatingused",
			"other-Failedused", "other-Succeedednew", "other-Succeededpool", "other-Succeededused", "other-Updatingpool", "other-Updatingused",
		},
		true: {
			"Cilium-Failedused", "Cilium-Succeedednew", "Cilium-Succeededpool", "Cilium-Succeededused", "Cilium-Updatingpool", "Cilium-Updatingused",
			"other-Failedused", "other-Succeededpool", "other-Succeededused", "other-Updatingpool", "other-Updatingused",
		},
	} {
		p := &provider{config: Config{AzureOnlyCiliumAddresses: only}}
		i := p.config.instancesOf([]*armnetwork.Interface{nicOfTest("eth0", configs...)}, nil)["/vm"]
		var got []string
		for address := range p.Addresses(n, i) {
			got = append(got, names[address])
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("only its own %v:\ngot  %q\nwant %q", only, got, want)
		}
	}
}

// AZIPAM-11 to AZIPAM-14: which subnet addresses are taken from, and why from none.
func TestChoice(t *testing.T) {
	a, b, delegated, gateway, elsewhere := network1+"/subnets/a", network1+"/subnets/b", network1+"/subnets/delegated", network1+"/subnets/GatewaySubnet", network2+"/subnets/z"
	fresh := nicOfTest("eth0", configOfTest("primary", "10.0.0.4", a, "Succeeded", true))
	mixed := nicOfTest("eth0", configOfTest("primary", "10.0.0.4", b, "Succeeded", true), configOfTest("x", "10.0.0.5", a, "Succeeded", false))
	var many []*armnetwork.InterfaceIPConfiguration
	for k := range perInterface {
		many = append(many, configOfTest("x", "10.1.0.1", a, "Succeeded", k == 0))
	}
	for name, test := range map[string]struct {
		nics   []*armnetwork.Interface
		wanted string // interface-name
		free   map[string]int
		want   cloudipam.Candidate
		why    string
	}{
		"a new machine":             {[]*armnetwork.Interface{fresh}, "", map[string]int{a: 20, elsewhere: 100}, cloudipam.Candidate{Interface: "/x/eth0", Subnet: a, Count: 20}, ""},
		"listed addresses first":    {[]*armnetwork.Interface{mixed}, "", map[string]int{a: 3, b: 100}, cloudipam.Candidate{Interface: "/x/eth0", Subnet: a, Count: 3}, ""},
		"then others of it":         {[]*armnetwork.Interface{mixed}, "", map[string]int{a: 0, b: 7}, cloudipam.Candidate{Interface: "/x/eth0", Subnet: b, Count: 7}, ""},
		"then of the network":       {[]*armnetwork.Interface{fresh}, "", map[string]int{a: 0, b: 9, elsewhere: 100, delegated: 50, gateway: 50}, cloudipam.Candidate{Interface: "/x/eth0", Subnet: b, Count: 9}, ""},
		"none of the network":       {[]*armnetwork.Interface{fresh}, "", map[string]int{a: 0, elsewhere: 100}, cloudipam.Candidate{}, "is full"},
		"a subnet that is not read": {[]*armnetwork.Interface{fresh}, "", map[string]int{elsewhere: 100}, cloudipam.Candidate{}, "does not exist, or the operator may not read it"},
		"spelled in another way":    {[]*armnetwork.Interface{fresh}, "", map[string]int{strings.ToUpper(a): 20}, cloudipam.Candidate{Interface: "/x/eth0", Subnet: strings.ToUpper(a), Count: 20}, ""},
		"no such interface":         {[]*armnetwork.Interface{fresh}, "eth7", map[string]int{a: 20}, cloudipam.Candidate{}, "no interface eth7"},
		"a full interface":          {[]*armnetwork.Interface{nicOfTest("eth0", many...)}, "", map[string]int{a: 20}, cloudipam.Candidate{}, ""},
		"almost full":               {[]*armnetwork.Interface{nicOfTest("eth0", many[:250]...)}, "", map[string]int{a: 20}, cloudipam.Candidate{Interface: "/x/eth0", Subnet: a, Count: 6}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{}
			all := subnetsForTest(test.free)
			i := p.config.instancesOf(test.nics, nil)["/vm"]
			n := nodeOf("/vm")
			n.Spec.Azure.InterfaceName = test.wanted
			got, ok := p.FreeInterface(n, i, all)
			if got != test.want || ok != (test.want != cloudipam.Candidate{}) {
				t.Errorf("got %+v, %v, want %+v", got, ok, test.want)
			}
			why := ""
			if err := p.ExhaustedError(n, i, all); err != nil && !ok {
				why = err.Error()
			}
			if (why == "") != (test.why == "") || !strings.Contains(why, test.why) {
				t.Errorf("the reason is %q, want %q", why, test.why)
			}
		})
	}
}

// AZIPAM-7, AZIPAM-26; numbers 18 and 19 of the contract's ipam-azure.md: what is published of an interface, and that of a new machine has the subnet
// of its primary address.
func TestStatus(t *testing.T) {
	s1, s2, unread := network1+"/subnets/s1", network1+"/subnets/s2", network1+"/subnets/unread"
	known := subnets{
		strings.ToLower(s1):     {ID: s1, Free: 20, Detail: vnetSubnet{cidr: "10.240.0.0/16", gateway: "10.240.0.1"}},
		strings.ToLower(s2):     {ID: s2, Free: 20, Detail: vnetSubnet{cidr: "10.241.0.0/16", gateway: "10.241.0.1"}},
		strings.ToLower(unread): {ID: unread, Detail: vnetSubnet{isUnread: true}},
	}
	of := func(id, cidr, gateway string, addresses ...v2.AzureAddress) v2.AzureInterface {
		return v2.AzureInterface{
			ID: "/x/eth0", Name: "eth0", IP: "10.240.0.4", Subnet: v2.AzureSubnet{ID: id, CIDR: cidr}, CIDR: cidr, Gateway: gateway, GatewayIP: gateway, Addresses: addresses,
		}
	}
	in := func(ip, subnet string) v2.AzureAddress {
		return v2.AzureAddress{IP: ip, Subnet: subnet, State: "succeeded"}
	}
	for name, test := range map[string]struct {
		primary string // its subnet
		others  map[string]string
		was     []v2.AzureInterface
		want    v2.AzureInterface
	}{
		"18":                              {s1, map[string]string{"10.240.0.12": s1}, nil, of(s1, "10.240.0.0/16", "10.240.0.1", in("10.240.0.12", s1))},
		"19":                              {s1, nil, nil, of(s1, "10.240.0.0/16", "10.240.0.1")},
		"of another subnet":               {s1, map[string]string{"10.241.0.12": s2}, nil, of(s2, "10.241.0.0/16", "10.241.0.1", in("10.241.0.12", s2))},
		"of one that is not read":         {s1, map[string]string{"10.242.0.12": unread}, nil, of(s1, "10.240.0.0/16", "10.240.0.1", in("10.242.0.12", unread))},
		"none is read":                    {unread, nil, nil, of(unread, "", "")},
		"none is read any more":           {unread, nil, []v2.AzureInterface{of(unread, "10.242.0.0/16", "10.242.0.1")}, of(unread, "10.242.0.0/16", "10.242.0.1")},
		"what was published is of others": {unread, nil, []v2.AzureInterface{of(s1, "10.240.0.0/16", "10.240.0.1")}, of(unread, "", "")},
		"published for agents up to 1.19": {
			unread, map[string]string{"10.242.0.12": unread}, []v2.AzureInterface{of("", "10.242.0.0/16", "10.242.0.1", in("10.242.0.12", unread))},
			of(unread, "10.242.0.0/16", "10.242.0.1", in("10.242.0.12", unread)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &provider{}
			configs := []*armnetwork.InterfaceIPConfiguration{configOfTest("primary", "10.240.0.4", test.primary, "Succeeded", true)}
			for _, ip := range slices.Sorted(maps.Keys(test.others)) {
				configs = append(configs, configOfTest("x", ip, test.others[ip], "Succeeded", false))
			}
			i := p.config.instancesOf([]*armnetwork.Interface{nicOfTest("eth0", configs...)}, known)["/vm"]
			status := v2.CiliumNodeStatus{Azure: v2.AzureStatus{Interfaces: test.was}}
			for range 2 {
				p.SetStatus(nodeOf("/vm"), i, &status)
				if got := status.Azure.Interfaces; len(got) != 1 || !reflect.DeepEqual(got[0], test.want) {
					t.Fatalf("\ngot  %+v\nwant %+v", got, test.want)
				}
			}
			if name == "19" {
				if to, ok := p.FreeInterface(nodeOf("/vm"), i, known.byID()); !ok || to.Subnet != s1 {
					t.Errorf("addresses are added from %+v", to)
				}
			}
		})
	}
}

// AZIPAM-11; number 20 of the contract's ipam-azure.md: primary addresses count against the 256 of an interface in any case, and against
// the capacity unless pods use them.
func TestLimits(t *testing.T) {
	subnet := network1 + "/subnets/a"
	var full []*armnetwork.InterfaceIPConfiguration
	for k := range perInterface {
		full = append(full, configOfTest("x", fmt.Sprintf("10.1.0.%d", k), subnet, "Succeeded", k == 0))
	}
	fresh := nicOfTest("eth1", configOfTest("primary", "10.2.0.4", subnet, "Succeeded", true))
	for name, test := range map[string]struct {
		usesPrimary bool
		nics        []*armnetwork.Interface
		want        cloudipam.Limits
	}{
		"20":                   {false, []*armnetwork.Interface{nicOfTest("eth0", full...)}, cloudipam.Limits{Addresses: 256, Capacity: 255, PreAllocate: 8}},
		"with the primary one": {true, []*armnetwork.Interface{nicOfTest("eth0", full...)}, cloudipam.Limits{Addresses: 256, Capacity: 256, PreAllocate: 8}},
		"two interfaces":       {false, []*armnetwork.Interface{nicOfTest("eth0", full...), fresh}, cloudipam.Limits{Addresses: 256, Capacity: 254, PreAllocate: 8, Interfaces: 1}},
	} {
		p := &provider{config: Config{AzureUsePrimaryAddress: test.usesPrimary}}
		i := p.config.instancesOf(test.nics, nil)["/vm"]
		got, err := p.Limits(nodeOf("/vm"), i)
		to, ok := p.FreeInterface(nodeOf("/vm"), i, subnetsForTest(map[string]int{subnet: 20}))
		if err != nil || got != test.want || ok != (test.want.Interfaces > 0) {
			t.Errorf("%s: %+v, %v, want %+v; %+v has room", name, got, err, test.want, to)
		}
	}
}

// AZIPAM-13: free addresses, by range and number of ipConfigurations.
func TestFreeAddresses(t *testing.T) {
	for prefix, want := range map[string]int{"10.0.0.0/24": 251 - 2, "10.0.0.0/29": 1, "10.0.0.0/30": 0, "fd00::/64": 0} {
		got := subnetsOf([]*armnetwork.VirtualNetwork{nil, {Properties: &armnetwork.VirtualNetworkPropertiesFormat{Subnets: []*armnetwork.Subnet{nil, {
			ID: to.Ptr("/A"), Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefixes: []*string{&prefix}, IPConfigurations: []*armnetwork.IPConfiguration{{}, {}}},
		}}}}})
		if got["/a"].Free != want {
			t.Errorf("%s has %+v", prefix, got)
		}
	}
}

// AZIPAM-5: ids of machines.
func TestParseMachine(t *testing.T) {
	for id, want := range map[string]machine{
		"/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/pool1/virtualmachines/3":                         {"s", "g", "pool1", "3"},
		"/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachineScaleSets/pool1/virtualMachines/3/networkInterfaces/pool1": {"S", "G", "pool1", "3"},
		"/subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachines/vm-1":                                                    {"s", "g", "", "vm-1"},
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/nic":                                                   {},
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute":                                                                         {},
		"i-0123": {}, "": {}, "////////////": {},
	} {
		got, ok := parseMachine(id)
		if got != want || ok != (want != machine{}) {
			t.Errorf("%q is %+v, %v", id, got, ok)
		}
	}
}

// AZIPAM-25: ids of subnets.
func TestParseSubnet(t *testing.T) {
	for id, want := range map[string]subnetPath{
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/one/subnets/a": {"s", "g", "one", "a"},
		"/subscriptions/S/resourcegroups/G/providers/microsoft.network/virtualnetworks/One/Subnets/A": {"S", "G", "One", "A"},
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/one/subnets/":  {},
		"/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/one":           {},
		"": {}, "//////////": {},
	} {
		got, ok := parseSubnet(id)
		if ok != (want != subnetPath{}) || ok && got != want {
			t.Errorf("%q is %+v, %v", id, got, ok)
		}
	}
}

// Interfaces that lack anything that can be missing are read, or left out.
func TestInterfacesThatLackParts(t *testing.T) {
	all := Config{}.instancesOf([]*armnetwork.Interface{
		nil, {}, {ID: to.Ptr("/x")}, {ID: to.Ptr("/x"), Properties: &armnetwork.InterfacePropertiesFormat{}},
		{ID: to.Ptr("/x"), Properties: &armnetwork.InterfacePropertiesFormat{VirtualMachine: &armnetwork.SubResource{}}},
		nicOfTest("eth0", nil, &armnetwork.InterfaceIPConfiguration{}, &armnetwork.InterfaceIPConfiguration{Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{}}, configOfTest("v6", "fd00::1", "", "Succeeded", false)),
	}, nil)
	if len(all) != 1 || len(all["/vm"].Interfaces) != 1 || len(all["/vm"].Interfaces[0].Addresses) != 0 || nicOf(all["/vm"].Interfaces[0]).all != 4 {
		t.Errorf("%v: %+v", slices.Collect(maps.Keys(all)), all["/vm"])
	}
}

// CIPAM-44, CIPAM-46, CIPAM-50, AZIPAM-7: what the engine knows of an interface: texts that are no address, for a report, the primary address,
// and the ranges of all of its subnets, if all are known. What is no address counts against the limit.
func TestWhatTheEngineKnows(t *testing.T) {
	a, b := network1+"/subnets/a", network1+"/subnets/b"
	known := subnetsOf([]*armnetwork.VirtualNetwork{{Properties: &armnetwork.VirtualNetworkPropertiesFormat{Subnets: []*armnetwork.Subnet{
		{ID: to.Ptr(a), Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefixes: []*string{to.Ptr("10.0.0.0/24"), to.Ptr("fd00::/64"), to.Ptr("10.7.0.0/24")}}},
		{ID: to.Ptr(b), Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: to.Ptr("10.1.0.0/24")}},
	}}}})
	configs := []*armnetwork.InterfaceIPConfiguration{configOfTest("p", "10.0.0.4", a, "Succeeded", true), configOfTest("x", "10.0.0.5", a, "Succeeded", false)}
	for n, text := range []string{"169.254.169.10", "0.0.0.0", "not-an-ip", "::ffff:10.0.0.6", "fd00::1", ""} {
		configs = append(configs, configOfTest("odd"+string(rune('0'+n)), text, a, "Succeeded", false))
	}
	read := func(configs ...*armnetwork.InterfaceIPConfiguration) cloudipam.Interface {
		return Config{}.instancesOf([]*armnetwork.Interface{nicOfTest("eth0", configs...)}, known)["/vm"].Interfaces[0]
	}
	i := read(configs...)
	if !slices.Equal(i.Addresses, []string{"10.0.0.5", "169.254.169.10", "0.0.0.0", "not-an-ip", "::ffff:10.0.0.6"}) || !slices.Equal(i.Own, []string{"10.0.0.4"}) || i.Network != networkOf(a) {
		t.Errorf("%q, own %q, in %s", i.Addresses, i.Own, i.Network)
	}
	if of := published(i); len(of.Addresses) != 1 || of.IP != "10.0.0.4" || unassigned(i) != perInterface-len(configs) {
		t.Errorf("%+v, room for %d", of, unassigned(i))
	}
	for want, configs := range map[string][]*armnetwork.InterfaceIPConfiguration{
		"[10.0.0.0/24 10.7.0.0/24]":             configs[:2],
		"[10.1.0.0/24 10.0.0.0/24 10.7.0.0/24]": {configs[0], configOfTest("y", "10.1.0.5", b, "Succeeded", false)},
		"[]":                                    {configs[0], configOfTest("y", "10.2.0.5", network1+"/subnets/c", "Succeeded", false)},
	} {
		if got := fmt.Sprint(read(configs...).Ranges); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// AZIPAM-2 and AZIPAM-3: which credential is used, by what there is.
func TestCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(file, []byte(`{"clientId": "c", "clientSecret": "s", "tenantId": "t"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		env  map[string]string
		id   string
		want string
	}{
		"the option":       {map[string]string{"AZURE_AUTH_LOCATION": file, "AZURE_CLIENT_ID": "e", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "s"}, "id", "the managed identity id (--azure-user-assigned-identity-id)"},
		"a file":           {map[string]string{"AZURE_AUTH_LOCATION": file, "AZURE_CLIENT_ID": "e", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "s"}, "", "(AZURE_AUTH_LOCATION)"},
		"no such file":     {map[string]string{"AZURE_AUTH_LOCATION": file + "x", "AZURE_CLIENT_ID": "e", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "s"}, "", "the client e of the environment (AZURE_CLIENT_ID); AZURE_AUTH_LOCATION was not used"},
		"the environment":  {map[string]string{"AZURE_CLIENT_ID": "e", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "s"}, "", "the client e of the environment (AZURE_CLIENT_ID)"},
		"without a secret": {map[string]string{"AZURE_CLIENT_ID": "e", "AZURE_TENANT_ID": "t"}, "", "the managed identity of the machine; AZURE_CLIENT_ID was not used"},
		"nothing":          {nil, "", "the managed identity of the machine"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"AZURE_AUTH_LOCATION", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"} {
				t.Setenv(variable, test.env[variable])
			}
			got, err := newCredential(Config{AzureUserAssignedIdentityID: test.id}, policy.ClientOptions{})
			if err != nil || !strings.Contains(got.source, test.want) || got.isSecond != strings.Contains(test.want, "was not used") {
				t.Errorf("%+v, %v, want %q", got, err, test.want)
			}
		})
	}
}
