// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8"

	"github.com/skep-operator/skep/resources/cloudipam"
)

// Read implements cloudipam.Provider: the interfaces of scale sets, then those of stand-alone machines, then the subnets.
func (p *provider) Read(ctx context.Context) (*cloudipam.State, error) {
	api, err := p.clients(ctx)
	if err != nil {
		return nil, err
	}
	nics, err := api.listAllNICs(ctx)
	if err != nil {
		return nil, err
	}
	known, err := p.readSubnets(ctx, api, nics)
	if err != nil {
		return nil, err
	}
	s := &cloudipam.State{Instances: p.config.instancesOf(nics, known), Subnets: known.byID()}
	p.reportFailed(slices.Collect(maps.Keys(s.Instances)), s.Instances, true)
	return s, nil
}

// listAllNICs lists the interfaces of all machines. A scale set that is to have no machines is not asked for its interfaces.
func (a *clients) listAllNICs(ctx context.Context) (nics []*armnetwork.Interface, err error) {
	scaleSets, err := a.listScaleSets(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range scaleSets {
		if s.SKU != nil && s.SKU.Capacity != nil && *s.SKU.Capacity == 0 {
			continue // a machine that it has yet is read alone
		}
		of, err := a.listScaleSetNICs(ctx, deref(s.Name))
		if err != nil {
			return nil, err
		}
		nics = append(nics, of...)
	}
	alone, err := a.listNICs(ctx)
	if err != nil {
		return nil, err
	}
	return append(nics, alone...), nil
}

// ReadInstances implements cloudipam.Provider.
func (p *provider) ReadInstances(ctx context.Context, ids []string) (map[string]*cloudipam.Instance, error) {
	api, err := p.clients(ctx)
	if err != nil {
		return nil, err
	}
	nics, err := api.listNICsOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	known, err := p.knownSubnets(ctx, api, nics)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	all := p.config.instancesOf(nics, known)
	maps.DeleteFunc(all, func(id string, _ *cloudipam.Instance) bool { return !wanted[id] })
	p.reportFailed(ids, all, false)
	return all, nil
}

// fewMachines is how many machines of a scale set are read one by one.
const fewMachines = 3

// listNICsOf lists the interfaces of machines: of few machines of a scale set one by one, of more by one list of the scale set,
// of stand-alone machines by one list of the resource group.
func (a *clients) listNICsOf(ctx context.Context, ids []string) (nics []*armnetwork.Interface, err error) {
	byScaleSet := map[string][]string{}
	for _, id := range ids {
		m, ok := parseMachine(id)
		if ok && strings.EqualFold(m.subscription, a.subscription) && strings.EqualFold(m.group, a.group) {
			byScaleSet[m.scaleSet] = append(byScaleSet[m.scaleSet], m.name)
		}
	}
	for _, scaleSet := range slices.Sorted(maps.Keys(byScaleSet)) {
		var of []*armnetwork.Interface
		switch machines := byScaleSet[scaleSet]; {
		case scaleSet == "":
			of, err = a.listNICs(ctx)
		case len(machines) > fewMachines:
			of, err = a.listScaleSetNICs(ctx, scaleSet)
		default:
			for _, name := range machines {
				var one []*armnetwork.Interface
				if one, err = a.listMachineNICs(ctx, scaleSet, name); err != nil {
					break
				}
				of = append(of, one...)
			}
		}
		if err != nil {
			return nil, err
		}
		nics = append(nics, of...)
	}
	return nics, nil
}

// reportFailed reports addresses that Azure has failed to provision: they are not used, and count against the limit of their
// interface. ids are the instances that were read, complete is for all that exist.
func (p *provider) reportFailed(ids []string, all map[string]*cloudipam.Instance, complete bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := maps.Clone(p.failing)
	if complete {
		clear(p.failing)
	}
	for _, id := range ids {
		delete(p.failing, id)
		if i := all[id]; i != nil && failedOf(i) != "" {
			p.failing[id] = failedOf(i)
		}
	}
	for id, text := range p.failing {
		if before[id] != text {
			p.Log.Warn("addresses were not provisioned", "instance", id, "addresses", text)
		}
	}
	h := p.Health.Child("provisioning")
	if len(p.failing) == 0 {
		if len(before) > 0 {
			h.OK("")
		}
		return
	}
	first := slices.Min(slices.Collect(maps.Keys(p.failing)))
	h.Degraded(fmt.Sprintf("%d machines have addresses that were not provisioned, %s among them: %s", len(p.failing), first, p.failing[first]), nil)
}

// failedOf are the addresses of an instance whose provisioning has failed.
func failedOf(i *cloudipam.Instance) string {
	var list []string
	for _, of := range i.Interfaces {
		for _, a := range nicOf(of).addresses {
			if a.state == failed {
				list = append(list, a.address)
			}
		}
	}
	return strings.Join(list, ", ")
}
