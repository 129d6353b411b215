// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cloudipam"
)

// AWS-25: invalid entries are named.
func TestInvalidOptions(t *testing.T) {
	many := map[string]string{}
	for _, a := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		many[string(a)] = ""
	}
	for name, test := range map[string]struct {
		config Config
		want   string // "" for valid
	}{
		"none":                       {Config{}, ""},
		"a mapping":                  {Config{AWSInstanceLimitMapping: map[string]string{"a2.custom": "3,10,10", "b": "2, 4, 0, nitro"}}, ""},
		"a mapping of two":           {Config{AWSInstanceLimitMapping: map[string]string{"a2.custom": "3,10"}}, "failed to parse aws-instance-limit-mapping: a2.custom=3,10: must be three numbers"},
		"a mapping without a number": {Config{AWSInstanceLimitMapping: map[string]string{"a2.custom": "3,ten,10"}}, `a2.custom=3,ten,10: "ten" is no number`},
		"a negative mapping":         {Config{AWSInstanceLimitMapping: map[string]string{"a": "3,-1,10"}}, `"-1" is no number`},
		"a mapping to nothing":       {Config{AWSInstanceLimitMapping: map[string]string{"a": "0,5,5"}}, "at least one interface"},
		"a mapping of no type":       {Config{AWSInstanceLimitMapping: map[string]string{"": "3,5,5"}}, "the type is empty"},
		"another hypervisor":         {Config{AWSInstanceLimitMapping: map[string]string{"a": "3,5,5,kvm"}}, `and not "kvm"`},
		"a tag of AWS":               {Config{ENITags: map[string]string{"AWS:x": "y"}}, "must not have tags of AWS, and has AWS:x=y"},
		"a tag without key":          {Config{ENIGCTags: map[string]string{"": "y"}}, "must be tags of EC2, and has =y: the key is empty"},
		"a long value":               {Config{SubnetTagsFilter: map[string]string{"k": strings.Repeat("v", 257)}}, "the value is longer than 256 characters"},
		"a long key":                 {Config{SubnetTagsFilter: map[string]string{strings.Repeat("k", 129): ""}}, "the key is longer than 128 characters"},
		"too many tags":              {Config{ENITags: many}, "at most 50 tags"},
		"a filter of AWS' tags":      {Config{SubnetTagsFilter: map[string]string{"aws:eks:cluster-name": "one"}}, ""},
		"subnets":                    {Config{SubnetIDsFilter: []string{"subnet-1", "subnet-2"}}, ""},
		"a VPC for a subnet":         {Config{SubnetIDsFilter: []string{"subnet-1", "vpc-1"}}, `has "vpc-1"`},
		"a host":                     {Config{EC2APIEndpoint: "ec2.eu-west-1.amazonaws.com"}, ""},
		"a URL":                      {Config{EC2APIEndpoint: "https://ec2.eu-west-1.amazonaws.com"}, "must be a host name"},
		"a page":                     {Config{AWSMaxResultsPerCall: 5}, ""},
		"a page that is too large":   {Config{AWSMaxResultsPerCall: 1001}, "from 5 to 1000"},
		"a page that is too small":   {Config{AWSMaxResultsPerCall: 4}, "from 5 to 1000"},
	} {
		err := test.config.Validate()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if err := checkFilter(cloudipam.Config{InstanceTagsFilter: map[string]string{"": "y"}}); err == nil || !strings.Contains(err.Error(), "--instance-tags-filter: must be tags of EC2, and has =y: the key is empty") {
		t.Errorf("a filter without a key: %v", err)
	}
}

// AWS-8: which source of limits holds, and the table that is built in.
func TestLimits(t *testing.T) {
	known := builtInLimits()
	for name, want := range map[string]limit{
		"m5.large": {3, 10, nitro, 0}, "m5.xlarge": {4, 15, nitro, 0}, "c5.4xlarge": {8, 30, nitro, 0}, "m5.24xlarge": {15, 50, nitro, 0}, "p4d.24xlarge": {60, 50, nitro, 0},
		"m4.xlarge": {4, 15, xen, 0}, "t2.micro": {2, 2, xen, 0}, "t3.micro": {2, 2, nitro, 0}, "c5.metal": {15, 50, metal, 0},
	} {
		if known[name] != want {
			t.Errorf("%s is built in as %+v, want %+v", name, known[name], want)
		}
	}
	if len(known) < 767 {
		t.Errorf("only %d types are built in", len(known))
	}
	for name, l := range known {
		if l.interfaces < 1 || l.ipv4 < 1 || !slices.Contains([]string{nitro, xen, metal}, l.hypervisor) {
			t.Errorf("%s is %+v", name, l)
		}
	}
	before := maps.Clone(known)
	got := merge(known, limits{"m5.large": {3, 11, nitro, 0}, "new": {1, 2, "", 0}}, limits{"m5.large": {2, 5, "", 0}, "mine": {4, 4, "", 0}, "m4.xlarge": {4, 15, nitro, 0}})
	for name, want := range map[string]limit{"m5.large": {2, 5, nitro, 0}, "new": {1, 2, "", 0}, "mine": {4, 4, "", 0}, "m4.xlarge": {4, 15, nitro, 0}, "t3.micro": {2, 2, nitro, 0}} {
		if got[name] != want {
			t.Errorf("%s is %+v, want %+v", name, got[name], want)
		}
	}
	if !maps.Equal(before, known) {
		t.Error("what is built in was changed")
	}
}
