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
	mu       sync.Mutex
	account  *account
	warned   map[string]bool      // what was logged, and is not logged again
	unknown  map[string]bool      // instance types that nodes have
	askedAt  time.Time            // for the limits of those
	denied   map[string]time.Time // operations, and when IAM has denied them
	reserved map[string]time.Time // elastic addresses, and until when they are left to the node that gets them
	odd      map[string][]string  // what EC2 shows as addresses, and is none, by interface
}

func newProvider(c Config, shared cloudipam.Config, s *session, u *upkeep, log *slog.Logger, h health.Reporter) (cloudipam.Provider, error) {
	mapped, err := c.mappedLimits()
	if err != nil {
		return nil, err
	}
	return &provider{
		config: c, filter: shared.InstanceTagsFilter, mapped: mapped, session: s, upkeep: u, log: log, health: h,
		warned: map[string]bool{}, unknown: map[string]bool{}, denied: map[string]time.Time{}, reserved: map[string]time.Time{},
	}, nil
}

// isNews reports whether something was not logged before.
func (p *provider) isNews(about string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.warned[about] {
		return false
	}
	p.warned[about] = true
	return true
}

// deniedInterval is when a call that IAM has denied is made again: a permission may be granted meanwhile.
const deniedInterval = time.Hour

// isDenied reports whether IAM has denied an operation lately.
func (p *provider) isDenied(operation string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, has := p.denied[operation]
	return has && time.Since(at) < deniedInterval
}

// setDenied records whether IAM denies an operation, and returns whether it has denied it before.
func (p *provider) setDenied(operation string, isDenied bool) (before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, before = p.denied[operation]
	if delete(p.denied, operation); isDenied {
		p.denied[operation] = time.Now()
	}
	return before
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
	instances, odd, err := p.readInstances(ctx, a)
	if err != nil {
		return nil, err
	}
	p.setAccount(a)
	p.reportOdd(odd)
	return &cloudipam.State{Instances: instances, Subnets: a.subnets}, nil
}

// readInstances reads the instances that the filters select. An instance is read with all its interfaces, or not at all.
func (p *provider) readInstances(ctx context.Context, a *account) (instances map[string]*cloudipam.Instance, odd map[string][]string, err error) {
	if len(p.filter) > 0 {
		ids, err := p.session.instances(ctx, p.filter)
		if err != nil {
			return nil, nil, err
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
			return map[string]*cloudipam.Instance{}, nil, nil
		}
		filters = append(filters, filter("vpc-id", slices.Sorted(maps.Keys(vpcs))...))
	}
	list, err := p.session.interfaces(ctx, filters...)
	if err != nil {
		return nil, nil, err
	}
	p.health.OK("")
	instances, odd = p.instancesOf(list, a)
	return instances, odd, nil
}

func (p *provider) readSome(ctx context.Context, a *account, ids []string) (instances map[string]*cloudipam.Instance, odd map[string][]string, err error) {
	list, err := p.session.interfacesOf(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	instances, odd = p.instancesOf(list, a)
	return instances, odd, nil
}

// reportOdd reports what EC2 shows as addresses of interfaces, and is none. It is left out: agents get addresses from the status of
// the CiliumNode, and one that is none would keep them from all others.
func (p *provider) reportOdd(odd map[string][]string) {
	p.mu.Lock()
	isNews := !maps.EqualFunc(p.odd, odd, slices.Equal)
	p.odd = odd
	p.mu.Unlock()
	h := p.health.Child("interfaces")
	if len(odd) == 0 {
		h.OK("")
		return
	}
	first := slices.Min(slices.Collect(maps.Keys(odd)))
	h.Degraded(fmt.Sprintf("EC2 shows what is no address as one of %d interfaces, %s among them, and it is left out: %.100q", len(odd), first, odd[first]), nil)
	if isNews {
		p.log.Warn("EC2 shows addresses that are none, and they are left out", "interfaces", odd)
	}
}

// ReadInstances implements cloudipam.Provider.
func (p *provider) ReadInstances(ctx context.Context, ids []string) (map[string]*cloudipam.Instance, error) {
	a, err := p.current(ctx)
	if err != nil {
		return nil, err
	}
	instances, _, err := p.readSome(ctx, a, ids) // the next complete read reports what is odd
	return instances, err
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
	return releasable(&n.Spec.ENI, i, isUsed, count)
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
