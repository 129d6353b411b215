// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config says how addresses of EC2 are allocated.
type Config struct {
	AWSEnablePrefixDelegation   bool              `flag:"aws-enable-prefix-delegation" usage:"Assign prefixes of 16 addresses where instances can have them"`
	AWSInstanceLimitMapping     map[string]string `flag:"aws-instance-limit-mapping" usage:"Limits of instance types: type=interfaces,IPv4,IPv6 addresses of each, and optionally the hypervisor"`
	AWSMaxResultsPerCall        int               `flag:"aws-max-results-per-call" usage:"Results on a page of EC2; 0 for the most that EC2 has"`
	AWSReleaseExcessIPs         bool              `flag:"aws-release-excess-ips" usage:"Release addresses that nodes do not need"`
	AWSUsePrimaryAddress        bool              `flag:"aws-use-primary-address" usage:"Allocate the primary addresses of interfaces to pods, too"`
	EC2APIEndpoint              string            `flag:"ec2-api-endpoint" usage:"Host name of the API of EC2"`
	ENIGCInterval               time.Duration     `flag:"eni-gc-interval" usage:"Interval between garbage collections of interfaces that are not attached. 0 disables them" min:"100ms" zero:"deletes none"`
	ENIGCTags                   map[string]string `flag:"eni-gc-tags" usage:"Tags of interfaces that are garbage collected; by default they name the cluster"`
	ENITags                     map[string]string `flag:"eni-tags" usage:"Tags of interfaces that are created"`
	SubnetIDsFilter             []string          `flag:"subnet-ids-filter" usage:"Subnets in which interfaces are created"`
	SubnetTagsFilter            map[string]string `flag:"subnet-tags-filter" usage:"Tags of the subnets in which interfaces are created"`
	UpdateEC2AdapterLimitViaAPI bool              `flag:"update-ec2-adapter-limit-via-api" usage:"Read the limits of instance types from EC2"`
}

// Validate implements the check of config structs. All that is invalid is reported, each entry by its text.
func (c Config) Validate() error {
	_, err := c.mappedLimits()
	errs := []error{err}
	if n := c.AWSMaxResultsPerCall; n != 0 && (n < 5 || n > maxResults) {
		errs = append(errs, cell.Invalid("aws-max-results-per-call", "must be 0, or from 5 to %d", maxResults))
	}
	if e := c.EC2APIEndpoint; e != "" && !hostName.MatchString(e) {
		errs = append(errs, cell.Invalid("ec2-api-endpoint", "must be a host name, such as ec2.eu-west-1.amazonaws.com, and is %q", e))
	}
	for _, id := range c.SubnetIDsFilter {
		if !strings.HasPrefix(id, "subnet-") {
			errs = append(errs, cell.Invalid("subnet-ids-filter", "must be ids of subnets, such as subnet-0a1b2c3d, and has %q", id))
		}
	}
	for flag, tags := range map[string]map[string]string{"eni-tags": c.ENITags, "eni-gc-tags": c.ENIGCTags} {
		for _, key := range slices.Sorted(maps.Keys(tags)) {
			if strings.HasPrefix(strings.ToLower(key), "aws:") {
				errs = append(errs, cell.Invalid(flag, "must not have tags of AWS, and has %s=%s", key, tags[key]))
			}
		}
		if len(tags) > maxTags {
			errs = append(errs, cell.Invalid(flag, "must have at most %d tags: EC2 takes no more", maxTags))
		}
	}
	for flag, tags := range map[string]map[string]string{
		"eni-tags": c.ENITags, "eni-gc-tags": c.ENIGCTags, "subnet-tags-filter": c.SubnetTagsFilter,
	} {
		errs = append(errs, badTags(flag, tags)...)
	}
	return errors.Join(errs...)
}

// checkFilter checks the option that clouds share.
func checkFilter(c cloudipam.Config) error {
	return errors.Join(badTags("instance-tags-filter", c.InstanceTagsFilter)...)
}

func badTags(flag string, tags map[string]string) (errs []error) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if why := badTag(key, tags[key]); why != "" {
			errs = append(errs, cell.Invalid(flag, "must be tags of EC2, and has %s=%s: %s", key, tags[key], why))
		}
	}
	return errs
}

// maxTags is how many tags EC2 takes.
const maxTags = 50

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$`)

// badTag is why EC2 does not take a tag, "" if it does.
func badTag(key, value string) string {
	switch {
	case key == "":
		return "the key is empty"
	case len([]rune(key)) > 128:
		return "the key is longer than 128 characters"
	case len([]rune(value)) > 256:
		return "the value is longer than 256 characters"
	}
	return ""
}

// mappedLimits are the limits of --aws-instance-limit-mapping.
func (c Config) mappedLimits() (limits, error) {
	table, errs := limits{}, []error(nil)
	for _, name := range slices.Sorted(maps.Keys(c.AWSInstanceLimitMapping)) {
		l, err := parseMapping(c.AWSInstanceLimitMapping[name])
		if err == nil && name == "" {
			err = errors.New("the type is empty")
		}
		if err != nil {
			errs = append(errs, cell.Invalid("aws-instance-limit-mapping", "failed to parse aws-instance-limit-mapping: %s=%s: %v", name, c.AWSInstanceLimitMapping[name], err))
			continue
		}
		table[name] = l
	}
	return table, errors.Join(errs...)
}

// parseMapping reads interfaces,ipv4,ipv6 and optionally the hypervisor.
func parseMapping(text string) (l limit, err error) {
	parts := strings.Split(text, ",")
	if len(parts) < 3 || len(parts) > 4 {
		return l, errors.New("must be three numbers, and optionally a hypervisor: 3,10,10,nitro")
	}
	var numbers [3]int
	for i := range numbers {
		if numbers[i], err = strconv.Atoi(strings.TrimSpace(parts[i])); err != nil || numbers[i] < 0 {
			return l, fmt.Errorf("%q is no number", parts[i])
		}
	}
	l = limit{interfaces: numbers[0], ipv4: numbers[1]}
	if l.interfaces < 1 || l.ipv4 < 1 {
		return l, errors.New("an instance has at least one interface, with one address")
	}
	if len(parts) == 4 {
		l.hypervisor = strings.TrimSpace(parts[3])
		if !slices.Contains([]string{nitro, xen, metal}, l.hypervisor) {
			return l, fmt.Errorf("the hypervisor is nitro, xen or metal, and not %q", l.hypervisor)
		}
	}
	return l, nil
}
