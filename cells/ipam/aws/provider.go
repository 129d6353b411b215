// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/runtime/health"
)

// provider is EC2 for cloudipam.
type provider struct {
	config  Config
	filter  map[string]string // tags of instances
	mapped  limits
	session *session
	upkeep  *upkeep
	recent  cloudipam.Recent[*eni] // what EC2 may not show yet: it is eventually consistent
	log     *slog.Logger
	health  health.Reporter

	// accounts are read by one worker; changes look at the last one.
	mu      sync.Mutex
	account *account
	advised bool
}

func newProvider(c Config, shared cloudipam.Config, s *session, u *upkeep, log *slog.Logger, h health.Reporter) (cloudipam.Provider, error) {
	mapped, err := c.mappedLimits()
	if err != nil {
		return nil, err
	}
	return &provider{config: c, filter: shared.InstanceTagsFilter, mapped: mapped, session: s, upkeep: u, log: log, health: h}, nil
}

// typesInterval is how long the limits of instance types hold: EC2 gets new types every few weeks.
const typesInterval = time.Hour

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
	instances, err := p.readInstances(ctx, a)
	if err != nil {
		return nil, err
	}
	p.setAccount(a)
	return &cloudipam.State{Instances: instances, Subnets: a.subnets}, nil
}

// readInstances reads the instances that the filters select. An instance is read with all its interfaces, or not at all.
func (p *provider) readInstances(ctx context.Context, a *account) (map[string]*cloudipam.Instance, error) {
	if len(p.filter) > 0 {
		ids, err := p.session.instances(ctx, p.filter)
		if err != nil {
			return nil, err
		}
		return p.readSome(ctx, a, ids)
	}
	filters := []types.Filter{filter("private-ip-address", "*")}
	if len(p.config.SubnetIDsFilter)+len(p.config.SubnetTagsFilter) > 0 {
		vpcs := map[string]bool{}
		for _, s := range a.subnets {
			if d := s.Detail.(*subnetDetail); d.eligible {
				vpcs[d.vpc] = true
			}
		}
		if len(vpcs) == 0 {
			p.health.Degraded("no subnet matches --subnet-ids-filter and --subnet-tags-filter: no interface can be created", nil)
			return map[string]*cloudipam.Instance{}, nil
		}
		filters = append(filters, filter("vpc-id", slices.Sorted(maps.Keys(vpcs))...))
	}
	list, err := p.session.interfaces(ctx, filters...)
	if err != nil {
		return nil, err
	}
	p.health.OK("")
	return p.instancesOf(list, a), nil
}

func (p *provider) readSome(ctx context.Context, a *account, ids []string) (map[string]*cloudipam.Instance, error) {
	list, err := p.session.interfacesOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	return p.instancesOf(list, a), nil
}

// readLimits reads the limits of instance types from EC2, unless it was done lately.
func (p *provider) readLimits(ctx context.Context) (of limits, at time.Time, err error) {
	if last := p.last(); last != nil && (!p.config.UpdateEC2AdapterLimitViaAPI || time.Since(last.limitsAt) < typesInterval) {
		return last.limits, last.limitsAt, nil
	}
	var ec2 limits
	if p.config.UpdateEC2AdapterLimitViaAPI {
		if ec2, err = p.readTypes(ctx); err != nil && !isDenied(err) {
			return nil, at, err
		}
		if err != nil {
			p.log.Warn("reading the limits of instance types is denied, using the table that is built in: allow ec2:DescribeInstanceTypes, or set --update-ec2-adapter-limit-via-api=false", "error", err)
		}
	}
	return merge(builtInLimits(), ec2, p.mapped), time.Now(), nil
}

// ReadInstances implements cloudipam.Provider.
func (p *provider) ReadInstances(ctx context.Context, ids []string) (map[string]*cloudipam.Instance, error) {
	a, err := p.current(ctx)
	if err != nil {
		return nil, err
	}
	return p.readSome(ctx, a, ids)
}

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
	v, known := p.config.viewOf(n, i)
	if !known {
		return cloudipam.Limits{}, p.unknownType(n)
	}
	return v.limitsOf(), nil
}

// unknownType is the error of a node whose limits are not known. What to do about it is logged once.
func (p *provider) unknownType(n *cloudipam.Node) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := n.Spec.ENI.InstanceType
	if name == "" {
		return &cloudipam.NodeError{Status: "unableToDetermineLimits", Text: "unable to determine limits: spec.eni.instance-type is empty, the agent sets it"}
	}
	if !p.advised {
		p.advised = true
		p.log.Warn("instance type is not known: set --update-ec2-adapter-limit-via-api, or --aws-instance-limit-mapping", "type", name)
	}
	return &cloudipam.NodeError{Status: "unableToDetermineLimits", Text: fmt.Sprintf("unable to determine limits: instance type %s is not known", name)}
}

// Addresses implements cloudipam.Provider.
func (p *provider) Addresses(n *cloudipam.Node, i *cloudipam.Instance) map[string]cloudipam.Address {
	all := map[string]cloudipam.Address{}
	for _, of := range i.Interfaces {
		e := eniOf(of)
		if isExcluded(&n.Spec.ENI, e) {
			continue
		}
		for _, address := range e.Addresses {
			all[address] = cloudipam.Address{Resource: e.ID}
		}
		for _, prefix := range e.Prefixes {
			for _, address := range addressesOf(prefix) {
				all[address] = cloudipam.Address{Resource: e.ID, Prefix: prefix}
			}
		}
	}
	return all
}

// FreeInterface implements cloudipam.Provider.
func (p *provider) FreeInterface(n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	v, known := p.config.viewOf(n, i)
	if !known {
		return cloudipam.Candidate{}, false
	}
	return v.freeInterface(subnets)
}

// Releasable implements cloudipam.Provider.
func (p *provider) Releasable(n *cloudipam.Node, i *cloudipam.Instance, isUsed func(string) bool, count int) cloudipam.Surplus {
	return releasable(n, i, isUsed, count)
}

// SetStatus implements cloudipam.Provider.
func (p *provider) SetStatus(_ *cloudipam.Node, i *cloudipam.Instance, status *v2.CiliumNodeStatus) {
	status.ENI.ENIs = nil
	if i == nil || len(i.Interfaces) == 0 {
		return
	}
	status.ENI.ENIs = map[string]v2.ENI{}
	for _, of := range i.Interfaces {
		status.ENI.ENIs[of.ID] = *eniOf(of).DeepCopy()
	}
}
