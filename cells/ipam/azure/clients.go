// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"github.com/skep-operator/skep/resources/outside"
)

// Operations, in the words of the original's metrics where it has them.
const (
	opScaleSets       = "VirtualMachineScaleSets.ListAll"
	opScaleSetNICs    = "Interfaces.ListVirtualMachineScaleSetNetworkInterfacesComplete"
	opMachineNICs     = "Interfaces.ListVirtualMachineScaleSetVMNetworkInterfacesComplete"
	opNICs            = "Interfaces.ListComplete"
	opNetworks        = "virtualnetworks.ListAll"
	opGetMachine      = "VirtualMachineScaleSetVMs.Get"
	opUpdateMachine   = "VirtualMachineScaleSetVMs.Update"
	opGetNIC          = "Interfaces.Get"
	opUpdateNIC       = "Interfaces.CreateOrUpdate"
	opWait            = "Operations.Get"
	opToken           = "Tokens.Get"
	pollInterval      = 5 * time.Second // where Azure does not say when to ask again
	longestRetryDelay = 10 * time.Second
	firstRetryDelay   = 250 * time.Millisecond
	retries           = 2
	applicationID     = "skep"
)

// clients are those of the SDK.
type clients struct {
	settings
	scaleSets *armcompute.VirtualMachineScaleSetsClient
	machines  *armcompute.VirtualMachineScaleSetVMsClient
	nics      *armnetwork.InterfacesClient
	networks  *armnetwork.VirtualNetworksClient
}

// newClients returns clients whose requests pass the door, each attempt of its own. 429 is not retried by the SDK: the engine
// keeps the pause.
func newClients(s settings, c Config, to pass) (*clients, error) {
	options := policy.ClientOptions{
		Cloud: s.cloud, Transport: to, Telemetry: policy.TelemetryOptions{ApplicationID: applicationID},
		Retry: policy.RetryOptions{
			MaxRetries: retries, RetryDelay: firstRetryDelay, MaxRetryDelay: longestRetryDelay,
			StatusCodes: []int{http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout},
		},
	}
	forTokens := options
	to.operation = opToken
	forTokens.Transport = to
	tokens, err := newCredential(c, forTokens)
	if err != nil {
		return nil, err
	}
	arms := &arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true}
	compute, err := armcompute.NewClientFactory(s.subscription, tokens, arms)
	if err != nil {
		return nil, err
	}
	network, err := armnetwork.NewClientFactory(s.subscription, tokens, arms)
	if err != nil {
		return nil, err
	}
	return &clients{
		settings: s, scaleSets: compute.NewVirtualMachineScaleSetsClient(), machines: compute.NewVirtualMachineScaleSetVMsClient(),
		nics: network.NewInterfacesClient(), networks: network.NewVirtualNetworksClient(),
	}, nil
}

// all returns the items of all pages.
func all[Page, Item any](ctx context.Context, operation string, pager *runtime.Pager[Page], items func(Page) []*Item) (list []*Item, err error) {
	ctx = reading(ctx, operation)
	for pages := 1; pager.More(); pages++ {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, describe(operation, err)
		}
		list = append(list, items(page)...)
		if err := outside.CheckList(operation, pages, len(list)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (a *clients) listScaleSets(ctx context.Context) ([]*armcompute.VirtualMachineScaleSet, error) {
	return all(ctx, opScaleSets, a.scaleSets.NewListPager(a.group, nil), func(p armcompute.VirtualMachineScaleSetsClientListResponse) []*armcompute.VirtualMachineScaleSet {
		return p.Value
	})
}

// listScaleSetNICs lists those of all machines of a scale set. One without machines may not be found.
func (a *clients) listScaleSetNICs(ctx context.Context, name string) ([]*armnetwork.Interface, error) {
	list, err := all(ctx, opScaleSetNICs, a.nics.NewListVirtualMachineScaleSetNetworkInterfacesPager(a.group, name, nil),
		func(p armnetwork.InterfacesClientListVirtualMachineScaleSetNetworkInterfacesResponse) []*armnetwork.Interface {
			return p.Value
		})
	return list, unlessNotFound(err)
}

// listMachineNICs lists those of a machine of a scale set, none if it does not exist.
func (a *clients) listMachineNICs(ctx context.Context, scaleSet, machine string) ([]*armnetwork.Interface, error) {
	list, err := all(ctx, opMachineNICs, a.nics.NewListVirtualMachineScaleSetVMNetworkInterfacesPager(a.group, scaleSet, machine, nil),
		func(p armnetwork.InterfacesClientListVirtualMachineScaleSetVMNetworkInterfacesResponse) []*armnetwork.Interface {
			return p.Value
		})
	return list, unlessNotFound(err)
}

// listNICs lists those of stand-alone machines.
func (a *clients) listNICs(ctx context.Context) ([]*armnetwork.Interface, error) {
	return all(ctx, opNICs, a.nics.NewListPager(a.group, nil), func(p armnetwork.InterfacesClientListResponse) []*armnetwork.Interface { return p.Value })
}

func (a *clients) listNetworks(ctx context.Context) ([]*armnetwork.VirtualNetwork, error) {
	return all(ctx, opNetworks, a.networks.NewListAllPager(nil), func(p armnetwork.VirtualNetworksClientListAllResponse) []*armnetwork.VirtualNetwork { return p.Value })
}
