// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// provider is Alibaba Cloud for cloudipam.
type provider struct {
	filter  map[string]string // tags of instances
	session *session
	upkeep  *upkeep
	recent  cloudipam.Recent[*eni] // what ECS may not show yet
	log     *slog.Logger

	// accounts are read by one worker; changes look at the last one.
	mu      sync.Mutex
	account *account
}

func newProvider(shared cloudipam.Config, s *session, u *upkeep, log *slog.Logger) cloudipam.Provider {
	return &provider{filter: shared.InstanceTagsFilter, session: s, upkeep: u, log: log}
}

func (p *provider) last() *account {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.account
}

func (p *provider) setAccount(a *account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account = a
}

// Read implements cloudipam.Provider.
func (p *provider) Read(ctx context.Context) (*cloudipam.State, error) {
	a, err := p.readAccount(ctx)
	if err != nil {
		return nil, err
	}
	list, err := p.readInterfaces(ctx, a)
	if err != nil {
		return nil, err
	}
	a.pages = 1 + len(list)/interfacePage
	p.setAccount(a)
	return &cloudipam.State{Instances: p.instancesOf(list, a), Subnets: a.subnets}, nil
}

// readInterfaces reads those of the VPC, or of the instances with the tags of the filter. An instance is read with all its
// interfaces, or not at all.
func (p *provider) readInterfaces(ctx context.Context, a *account) ([]interfaceItem, error) {
	if len(p.filter) == 0 {
		return p.session.interfaces(ctx, query{"VpcId": a.vpc})
	}
	instances, err := p.session.tagged(ctx, p.filter)
	if err != nil {
		return nil, err
	}
	ids, err := p.session.interfacesOfInstances(ctx, instances)
	if err != nil {
		return nil, err
	}
	return p.session.interfacesByID(ctx, ids)
}

// ReadInstances implements cloudipam.Provider: each instance alone, as long as that costs less than a list of all interfaces.
func (p *provider) ReadInstances(ctx context.Context, ids []string) (map[string]*cloudipam.Instance, error) {
	a, err := p.current(ctx)
	if err != nil {
		return nil, err
	}
	var list []interfaceItem
	if len(ids) > max(a.pages, fewInstances) {
		list, err = p.session.interfaces(ctx, query{"VpcId": a.vpc})
	} else {
		list, err = p.session.interfacesByInstance(ctx, ids)
	}
	if err != nil {
		return nil, err
	}
	all, some := p.instancesOf(list, a), map[string]*cloudipam.Instance{}
	for _, id := range ids {
		if all[id] != nil {
			some[id] = all[id]
		}
	}
	return some, nil
}

// fewInstances is how many instances are read one by one in any case.
const fewInstances = 3

// current is the account as of the last read, or of now if there was none.
func (p *provider) current(ctx context.Context) (*account, error) {
	if a := p.last(); a != nil {
		return a, nil
	}
	a, err := p.readAccount(ctx)
	if err != nil {
		return nil, err
	}
	p.setAccount(a)
	return a, nil
}

// Limits implements cloudipam.Provider.
func (p *provider) Limits(n *cloudipam.Node, i *cloudipam.Instance) (cloudipam.Limits, error) {
	v, known := viewOf(n, i)
	if !known {
		return cloudipam.Limits{}, unknownType(n)
	}
	return v.limitsOf(), nil
}

// unknownType is the error of a node whose limits are not known.
func unknownType(n *cloudipam.Node) error {
	text := "spec.alibaba-cloud.instance-type is empty, the agent sets it"
	if of := n.Spec.AlibabaCloud.InstanceType; of != "" {
		text = fmt.Sprintf("ECS does not list instance type %s, or lists no interfaces for it", of)
	}
	return &cloudipam.NodeError{Status: "unableToDetermineLimits", Text: "unable to determine limits: " + text}
}

// Addresses implements cloudipam.Provider.
func (p *provider) Addresses(n *cloudipam.Node, i *cloudipam.Instance) map[string]cloudipam.Address {
	all := map[string]cloudipam.Address{}
	for _, of := range i.Interfaces {
		for _, address := range of.Addresses {
			if isUsable(n, eniOf(of), address) {
				all[address] = cloudipam.Address{Resource: of.ID}
			}
		}
	}
	return all
}

// FreeInterface implements cloudipam.Provider.
func (p *provider) FreeInterface(n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	v, known := viewOf(n, i)
	if !known {
		return cloudipam.Candidate{}, false
	}
	return v.freeInterface(subnets)
}

// ExhaustedError implements cloudipam.Explainer.
func (p *provider) ExhaustedError(n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet) error {
	v, known := viewOf(n, i)
	if !known {
		return unknownType(n)
	}
	return v.exhausted(subnets)
}

// Releasable implements cloudipam.Provider.
func (p *provider) Releasable(_ *cloudipam.Node, i *cloudipam.Instance, isUsed func(string) bool, count int) cloudipam.Surplus {
	return releasable(i, isUsed, count)
}

// SetStatus implements cloudipam.Provider.
func (p *provider) SetStatus(_ *cloudipam.Node, i *cloudipam.Instance, status *v2.CiliumNodeStatus) {
	status.AlibabaCloud.ENIs = nil
	if i == nil || len(i.Interfaces) == 0 {
		return
	}
	status.AlibabaCloud.ENIs = map[string]v2.AlibabaCloudENI{}
	for _, of := range i.Interfaces {
		status.AlibabaCloud.ENIs[of.ID] = *eniOf(of).DeepCopy()
	}
}
