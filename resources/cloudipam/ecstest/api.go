// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ecstest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// operation carries out a request, and returns the body of its answer.
type operation struct {
	version string
	changes bool
	do      func(*Cloud, request) (map[string]any, *refusal)
}

const (
	ecsVersion = "2014-05-26"
	vpcVersion = "2016-04-28"
)

var operations = map[string]operation{
	"DescribeVpcs":               {vpcVersion, false, (*Cloud).describeVpcs},
	"DescribeVSwitches":          {vpcVersion, false, (*Cloud).describeVSwitches},
	"DescribeSecurityGroups":     {ecsVersion, false, (*Cloud).describeSecurityGroups},
	"DescribeInstanceTypes":      {ecsVersion, false, (*Cloud).describeInstanceTypes},
	"DescribeInstances":          {ecsVersion, false, (*Cloud).describeInstances},
	"DescribeNetworkInterfaces":  {ecsVersion, false, (*Cloud).describeNetworkInterfaces},
	"ListTagResources":           {ecsVersion, false, (*Cloud).listTagResources},
	"CreateNetworkInterface":     {ecsVersion, true, (*Cloud).createNetworkInterface},
	"AttachNetworkInterface":     {ecsVersion, true, (*Cloud).attachNetworkInterface},
	"DeleteNetworkInterface":     {ecsVersion, true, (*Cloud).deleteNetworkInterface},
	"AssignPrivateIpAddresses":   {ecsVersion, true, (*Cloud).assignPrivateIPAddresses},
	"UnassignPrivateIpAddresses": {ecsVersion, true, (*Cloud).unassignPrivateIPAddresses},
}

// request are the parameters of a request.
type request struct {
	values url.Values
	fault  Fault
}

func (r request) text(name string) string { return r.values.Get(name) }

// number is a parameter from 1 to a bound, or what it is if it is missing.
func (r request) number(name string, missing, most int) (int, *refusal) {
	text := r.text(name)
	if text == "" {
		return missing, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid(name)
	}
	return n, nil
}

// list are the values of a parameter that is a list: Name.1, Name.2.
func (r request) list(name string) (all []string) {
	for n := 1; r.values.Has(fmt.Sprintf("%s.%d", name, n)); n++ {
		all = append(all, r.text(fmt.Sprintf("%s.%d", name, n)))
	}
	return all
}

// tags are the parameters Tag.1.Key and so on.
func (r request) tags() map[string]string {
	tags := map[string]string{}
	for n := 1; r.values.Has(fmt.Sprintf("Tag.%d.Key", n)); n++ {
		tags[r.text(fmt.Sprintf("Tag.%d.Key", n))] = r.text(fmt.Sprintf("Tag.%d.Value", n))
	}
	return tags
}

func invalid(parameter string) *refusal {
	return &refusal{http.StatusBadRequest, "InvalidParameter", "The specified parameter " + parameter + " is not valid."}
}

func notFound(code, id string) *refusal {
	return &refusal{http.StatusNotFound, code, "The specified resource " + id + " does not exist."}
}

func forbidden(code string) *refusal {
	return &refusal{http.StatusForbidden, code, "The operation is not allowed."}
}

// hosts are those of the endpoints, with the versions of their APIs.
func (c *Cloud) hosts() map[string]string {
	return map[string]string{"ecs-vpc." + c.Region + ".aliyuncs.com": ecsVersion, "vpc-vpc." + c.Region + ".aliyuncs.com": vpcVersion}
}

// metadataHost is that of the metadata service.
const metadataHost = "100.100.100.200"

// Handler serves the endpoints of the region and the metadata service, which it knows by the Host of requests.
func (c *Cloud) Handler() http.Handler { return http.HandlerFunc(c.serve) }

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	if r.Host == metadataHost {
		c.metadata(w, r)
		return
	}
	version, known := c.hosts()[r.Host]
	if !known {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	body, fault, err := c.handle(r, version)
	switch {
	case fault.Lose:
		if connection, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = connection.Close()
		}
	case fault.Garbage:
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "<html>")
	case err != nil:
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		if fault.TimeLeft > 0 {
			w.Header().Set("X-RateLimit-User-API", fmt.Sprintf("Limit:1,Remain:0,TimeLeft:%d,Reset:1", fault.TimeLeft))
		}
		answer(w, err.status, map[string]any{"Code": err.code, "Message": err.message + " (" + c.id() + ")", "HostId": r.Host, "RequestId": c.id()})
	default:
		body["RequestId"] = c.id()
		answer(w, http.StatusOK, body)
	}
}

// id is that of a request.
func (c *Cloud) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", c.requests)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (c *Cloud) handle(r *http.Request, version string) (map[string]any, Fault, *refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	name := r.Header.Get("x-acs-action")
	op, known := operations[name]
	if err := c.authenticate(r); err != nil {
		return nil, Fault{}, err
	}
	req := request{values: r.URL.Query()}
	switch {
	case r.Method != http.MethodPost, !known, op.version != version, r.Header.Get("x-acs-version") != version:
		return nil, Fault{}, &refusal{http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found, please check your url and method."}
	case req.text("RegionId") != c.Region:
		return nil, Fault{}, notFound("InvalidRegionId.NotFound", req.text("RegionId"))
	}
	if c.Fault != nil {
		parameters := map[string]string{}
		for key := range req.values {
			parameters[key] = req.text(key)
		}
		req.fault = c.Fault(name, parameters)
	}
	if req.fault.Status != 0 {
		return nil, req.fault, &refusal{req.fault.Status, req.fault.Code, cmp.Or(req.fault.Message, "The request was refused.")}
	}
	c.calls[name]++
	body, err := op.do(c, req)
	if err == nil && op.changes {
		c.changes++
	}
	return body, req.fault, err
}

var signed = regexp.MustCompile(`^ACS3-HMAC-SHA256 Credential=([^,]+),SignedHeaders=([a-z0-9;-]+),Signature=[0-9a-f]{64}$`)

// authenticate checks who signed a request and what, and not the signature.
func (c *Cloud) authenticate(r *http.Request) *refusal {
	by := signed.FindStringSubmatch(r.Header.Get("Authorization"))
	if by == nil {
		return &refusal{http.StatusBadRequest, "IncompleteSignature", "The request signature does not conform to Aliyun standards."}
	}
	for _, name := range []string{"host", "x-acs-action", "x-acs-version", "x-acs-date", "x-acs-signature-nonce", "x-acs-content-sha256"} {
		if !slices.Contains(strings.Split(by[2], ";"), name) {
			return &refusal{http.StatusBadRequest, "IncompleteSignature", "The request signature lacks the header " + name}
		}
	}
	if c.KeyID != nil && by[1] != c.KeyID() {
		return notFound("InvalidAccessKeyId.NotFound", by[1])
	}
	nonce := r.Header.Get("x-acs-signature-nonce")
	if c.nonces[nonce] {
		return &refusal{http.StatusBadRequest, "SignatureNonceUsed", "Specified signature nonce was used already."}
	}
	c.nonces[nonce] = true
	return nil
}

// token is that of the metadata service.
const token = "a-token"

func (c *Cloud) metadata(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls["metadata"]++
	values := map[string]string{
		"/latest/meta-data/region-id": c.Region, "/latest/meta-data/vpc-id": VPC, "/latest/meta-data/zone-id": c.Zone, "/latest/meta-data/vpc-cidr-block": "10.0.0.0/8",
		"/latest/meta-data/instance-id": "i-operator", "/latest/meta-data/instance/instance-type": "ecs.small",
	}
	value := values[r.URL.Path]
	switch {
	case c.away:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aliyun-ecs-metadata-token-ttl-seconds") != "":
		_, _ = io.WriteString(w, token)
	case c.Hardened && r.Header.Get("X-aliyun-ecs-metadata-token") != token:
		w.WriteHeader(http.StatusForbidden)
	case r.Method != http.MethodGet || value == "":
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = io.WriteString(w, value)
	}
}
