// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/skep-operator/skep/resources/cloudipam"
)

const (
	// typesInterval is how long the limits of instance types hold: EC2 gets new types every few weeks.
	typesInterval = time.Hour
	// unknownInterval is how often EC2 is asked for those that nodes have, and that are not known.
	unknownInterval = time.Minute
	// maxUnknown is how many of those are asked for at once.
	maxUnknown = 100
)

// typeName keeps a node from asking for all types at once: EC2 has wildcards.
var typeName = regexp.MustCompile(`^[a-z0-9-]{1,32}\.[a-z0-9-]{1,32}$`)

// readLimits reads the limits of instance types from EC2: those of all, unless it was done lately, or those of the types that are not
// known. What was read before holds while EC2 does not answer.
func (p *provider) readLimits(ctx context.Context) (of limits, at time.Time, err error) {
	last := p.last()
	switch {
	case last != nil && !p.config.UpdateEC2AdapterLimitViaAPI:
		return last.limits, last.limitsAt, nil
	case last != nil && time.Since(last.limitsAt) < typesInterval:
		return p.withUnknown(ctx, last.limits), last.limitsAt, nil
	case last == nil && (!p.config.UpdateEC2AdapterLimitViaAPI || p.isDenied(opTypes)):
		return merge(builtInLimits(), nil, p.mapped), time.Now(), nil
	}
	all, err := p.readTypes(ctx)
	switch {
	case err == nil:
		return merge(builtInLimits(), all, p.mapped), time.Now(), nil
	case isDenied(err) && last != nil:
		return last.limits, time.Now(), nil
	case isDenied(err):
		return merge(builtInLimits(), nil, p.mapped), time.Now(), nil
	case last != nil:
		p.log.Warn("reading the limits of instance types failed, using those of the last read", "error", err)
		return last.limits, last.limitsAt, nil
	}
	return nil, at, err
}

// withUnknown adds the limits of types that nodes have and that are not known. That it fails concerns these nodes only.
func (p *provider) withUnknown(ctx context.Context, known limits) limits {
	names := p.nextUnknown()
	if len(names) == 0 {
		return known
	}
	some, err := p.readTypes(ctx, names...)
	if err != nil && !isDenied(err) {
		p.log.Warn("reading the limits of instance types failed, asking again after a minute", "types", names, "error", err)
	}
	if len(some) == 0 {
		return known
	}
	all := maps.Clone(some)
	maps.Copy(all, known)
	return all
}

// nextUnknown are the types to ask for now.
func (p *provider) nextUnknown() []string {
	if p.isDenied(opTypes) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.unknown) == 0 || time.Since(p.askedAt) < unknownInterval {
		return nil
	}
	names := slices.Sorted(maps.Keys(p.unknown))
	p.unknown, p.askedAt = map[string]bool{}, time.Now()
	return names
}

// readTypes are the limits of instance types that EC2 knows: those of the names, or all. What to do where IAM denies it is logged once.
func (p *provider) readTypes(ctx context.Context, names ...string) (limits, error) {
	all, err := p.session.instanceTypes(ctx, names...)
	if isDenied(err) {
		if !p.setDenied(opTypes, true) {
			p.log.Warn("reading the limits of instance types is denied, using the table that is built in, asking again in an hour: allow ec2:DescribeInstanceTypes, or set --update-ec2-adapter-limit-via-api=false", "error", err)
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	p.setDenied(opTypes, false)
	table := limits{}
	for i := range all {
		if l, ok := limitOf(&all[i]); ok {
			table[string(all[i].InstanceType)] = l
		}
	}
	return table, nil
}

func limitOf(t *types.InstanceTypeInfo) (l limit, ok bool) {
	if t.NetworkInfo == nil {
		return l, false
	}
	l.interfaces, l.ipv4 = int(sdk.ToInt32(t.NetworkInfo.MaximumNetworkInterfaces)), int(sdk.ToInt32(t.NetworkInfo.Ipv4AddressesPerInterface))
	if l.hypervisor = string(t.Hypervisor); l.hypervisor == "" && sdk.ToBool(t.BareMetal) {
		l.hypervisor = metal
	}
	for _, c := range t.NetworkInfo.NetworkCards {
		if sdk.ToInt32(c.NetworkCardIndex) == 0 {
			l.firstCard = int(sdk.ToInt32(c.MaximumNetworkInterfaces))
		}
	}
	return l, l.interfaces > 0 && l.ipv4 > 0
}

// unknownType is the error of a node whose limits are not known. The next complete read asks EC2 for the type. What to do about it is
// logged once.
func (p *provider) unknownType(n *cloudipam.Node) error {
	name := n.Spec.ENI.InstanceType
	if name == "" {
		return &cloudipam.NodeError{Status: "unableToDetermineLimits", Text: "unable to determine limits: spec.eni.instance-type is empty, the agent sets it"}
	}
	p.mu.Lock()
	if typeName.MatchString(name) && len(p.unknown) < maxUnknown {
		p.unknown[name] = true
	}
	p.mu.Unlock()
	if p.isNews("unknown types") {
		p.log.Warn("instance type is not known: set --update-ec2-adapter-limit-via-api, or --aws-instance-limit-mapping", "type", name)
	}
	return &cloudipam.NodeError{Status: "unableToDetermineLimits", Text: fmt.Sprintf("unable to determine limits: instance type %s is not known", name)}
}
